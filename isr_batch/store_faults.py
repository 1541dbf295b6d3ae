"""Put faults of addresses, stores and catalogs, as Spark reports them, into one sentence each."""

import re

_FAULTS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"No FileSystem for scheme \"?([\w+.-]+)|Class (org\.apache\.hadoop\.fs\.[\w.$]+) not found"),
        "Spark has nothing that reads and writes such addresses: {0}",
        "look at the scheme (s3a:, abfss:, gs:, hdfs:), and give Spark the jars that know it",
    ),
    (
        re.compile(r"NoSuchBucket|UnknownStoreException: `?([\w:/.-]+)|([Bb]ucket \S+) does not exist"),
        "there is no such bucket or container: {0}",
        "make it, or look at the address given with --lake",
    ),
    (
        re.compile(
            r"AccessDenied|Access ?Denied|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|NoAuthWithAWSException|"
            r"NoAwsCredentialsException|AuthorizationPermissionMismatch|AccessControlException|"
            r"Unable to load credentials|InsufficientPermissions|INSUFFICIENT_PERMISSIONS"
        ),
        "the store or the catalog does not let this user in, or not do this{0}",
        "look at the credentials that Spark has, and at their rights: it takes reading, writing, listing and deleting",
    ),
    (
        re.compile(r"UnknownHostException: ([\w.-]+)|ConnectException: Call From \S+ to (\S+) failed"),
        "there is no way to {0}",
        "look at the address, at the endpoint that Spark has for it, and at the network",
    ),
    (
        re.compile(r"\[SCHEMA_NOT_FOUND\][^`]*(\S+)|\[NO_SUCH_NAMESPACE\][^`]*(\S+)"),
        "there is no schema {0}",
        "make it with CREATE SCHEMA, or look at --catalog",
    ),
    (
        re.compile(r"\[CATALOG_NOT_FOUND\][^`]*(\S+)|Catalog '(\w+)' (?:plugin class )?not found"),
        "Spark has no catalog {0}",
        "look at --catalog; spark.sql.catalog.NAME in Spark's configuration makes one known",
    ),
)
"""What Spark and its stores say of an address: a pattern, that in words, and what to do. Only names are repeated: a
message of theirs may hold credentials."""


def fault_of_store(text: str) -> tuple[str, str] | None:
    """Find a fault of an address, a store or a catalog in what Spark says; None if it is something else.

    Returns
    -------
    (message, hint) or None
    """
    for pattern, message, hint in _FAULTS:
        if found := pattern.search(text):
            name = next(filter(None, found.groups()), "")
            return message.format(name.strip(".,`'")), hint
    return None
