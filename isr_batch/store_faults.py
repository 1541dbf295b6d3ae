"""Translate Spark's errors about addresses, stores and catalogs into one sentence and a remedy each."""

import re

_FAULTS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"No FileSystem for scheme \"?([\w+.-]+)|Class (org\.apache\.hadoop\.fs\.[\w.$]+) not found"),
        "Spark has no file system for such addresses: {0}",
        "check the scheme (s3a:, abfss:, gs:, hdfs:), and add the jars that implement it to Spark",
    ),
    (
        re.compile(r"NoSuchBucket|UnknownStoreException: `?([\w:/.-]+)|([Bb]ucket \S+) does not exist"),
        "there is no such bucket or container: {0}",
        "create it, or check the address given with --lake",
    ),
    (
        re.compile(
            r"AccessDenied|Access ?Denied|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|NoAuthWithAWSException|"
            r"NoAwsCredentialsException|AuthorizationPermissionMismatch|AccessControlException|"
            r"Unable to load credentials|InsufficientPermissions|INSUFFICIENT_PERMISSIONS"
        ),
        "the store or the catalog denies access{0}",
        "check Spark's credentials: they need the rights to read, write, list and delete",
    ),
    (
        re.compile(r"UnknownHostException: ([\w.-]+)|ConnectException: Call From \S+ to (\S+) failed"),
        "{0} cannot be reached",
        "check the address, the endpoint in Spark's configuration, and the network",
    ),
    (
        re.compile(r"\[SCHEMA_NOT_FOUND\][^`]*(\S+)|\[NO_SUCH_NAMESPACE\][^`]*(\S+)"),
        "there is no schema {0}",
        "create it with CREATE SCHEMA, or check --catalog",
    ),
    (
        re.compile(r"\[CATALOG_NOT_FOUND\][^`]*(\S+)|Catalog '(\w+)' (?:plugin class )?not found"),
        "Spark has no catalog {0}",
        "check --catalog; spark.sql.catalog.NAME in Spark's configuration defines one",
    ),
)
"""Each entry is (pattern, message, remedy). The pattern matches the text of a Spark error. Its first non-empty group
replaces ``{0}`` in the message."""


def store_fault(text: str) -> tuple[str, str] | None:
    """Return (message, hint) for the text of a Spark error about an address, a store or a catalog; else None."""
    for pattern, message, hint in _FAULTS:
        if found := pattern.search(text):
            name = next(filter(None, found.groups()), "")
            return message.format(name.strip(".,`'")), hint
    return None
