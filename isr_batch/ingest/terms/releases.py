"""Find the Kafka release of each leader: given by the user, logged, or inferred from the version of fetch requests."""

import re
from typing import Any

import pyarrow as pa

from isr_batch.broker_lines.vendors import apache_release
from isr_batch.ingest.requests.request_log import FOLLOWER_FETCH
from isr_batch.ingest.terms.mid_term import INFERRED, LOGGED

GIVEN = "given"
FETCH_OF_RELEASE = (
    (18, "4.1"), (17, "3.9"), (16, "3.7"), (14, "3.5"), (13, "3.1"), (12, "2.7"), (11, "2.3"), (10, "2.1"), (8, "2.0"),
    (7, "1.1"), (4, "0.11"), (3, "0.10.1"), (2, "0.10.0"),
)  # fmt: skip
"""Versions of followers' Fetch requests, each with the first release that uses it (MetadataVersion.fetchRequestVersion;
before 3.2 ReplicaFetcherThread). Because of inter.broker.protocol.version, later releases may use the version too."""


def with_releases(led: list[dict[str, Any]], oldest: str | None, release: str | None) -> None:
    """Fill in, in place, the Kafka release of each term's leader, and its source.

    If no release is given, the first of these is used: the release that the leader's process logged, that of another
    process of the same broker, that of another broker, and ``oldest``.

    Parameters
    ----------
    led : list of dict
        Rows of leader_epochs.
    oldest : str or None
        Result of `oldest_release`.
    release : str or None
        Release that the user gave, if any.
    """
    logged = {row["leader_id"]: row["broker_version"] or row["version"] for row in led}
    others = max((version for version in logged.values() if version), key=_numbers_of_release, default=None)
    for row in led:
        row["broker_version_source"] = LOGGED if release is None else GIVEN
        row["broker_version"] = release or row["broker_version"] or logged[row["leader_id"]] or others
        if row["broker_version"] is None:
            row["broker_version"], row["broker_version_source"] = oldest, INFERRED if oldest else None


def _numbers_of_release(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", apache_release(version))]


def oldest_release(by_file: pa.Table) -> str | None:
    """Return the oldest release that the brokers can have, judging by their Fetch requests; None without fetches.

    It is the first release that uses the highest version of Fetch requests in the logs.

    Parameters
    ----------
    by_file : pa.Table
        Result of `isr_batch.ingest.requests.request_summary.requests_by_file`.
    """
    asked = max(
        (row["api_version"] for row in by_file.to_pylist()
         if row["kind"] == FOLLOWER_FETCH and row["api_version"] is not None),
        default=None,
    )  # fmt: skip
    return next((release for version, release in FETCH_OF_RELEASE if asked is not None and version <= asked), None)
