"""Lines of a follower's own log about why it could not fetch, as logged by Kafka's fetcher threads and logs."""

import pytest

from tests.log_lines import found_in, of_brokers

FETCHER = "[ReplicaFetcher replicaId=2, leaderId=1, fetcherId=0] "
LINES = {
    "Replication is failing due to a message that is greater than replica.fetch.max.bytes for partition t-0.": (
        "record_too_large"
    ),
    "Stopping serving logs in dir /var/lib/kafka": "log_dir_failed",
    f"{FETCHER}Found invalid messages during fetch for partition t-0 offset 12": "corrupt_record",
    f"{FETCHER}Error due to": "fetcher_died",
    f"{FETCHER}Connection to node 1 (b1/10.0.0.1:9092) could not be established. Node may not be available.": (
        "not_connected"
    ),
    f"{FETCHER}Error in response for fetch request (type=FetchRequest, replicaId=2)": "fetch_failed",
    f"{FETCHER}Partition t-0 marked as failed": "stale_epoch",
    f"{FETCHER}Truncating partition t-0 with TruncationState(offset=5, completed=true) due to local high watermark 5": (
        None
    ),
    "[Log partition=t-0, dir=/d] Truncating to offset 5": "truncated",
}


@pytest.mark.parametrize(("text", "kind"), LINES.items())
def test_the_kind_of_trouble(text: str, kind: str | None) -> None:
    assert [trouble.kind for trouble in found_in(of_brokers(b2=[(0, text)])).troubles] == ([kind] if kind else [])


def test_lines_of_trouble_are_found_among_all_lines() -> None:
    found = found_in(of_brokers(b2=[(n, text) for n, text in enumerate(LINES)]))
    assert [trouble.kind for trouble in found.troubles] == [kind for kind in LINES.values() if kind]
