"""Files that operators put next to their logs: listings of partitions, and settings of the cluster."""

import gzip
from pathlib import Path

import pytest

from isr_batch.errors import NoInputError, UsageError
from isr_batch.ingest.folder.first_look import require_follower_fetches
from isr_batch.ingest.folder.log_folder import METADATA, SNAPSHOT, find_logs
from isr_batch.ingest.folder.partition_listing import Listed, is_listing, listing_sentence, parse_listing, read_listing
from isr_batch.ingest.folder.settings_files import ClusterSettings, is_release

NEW = """\
Topic: busy\tTopicId: QOGIGkfUTjeQvN1wX98dSQ\tPartitionCount: 2\tReplicationFactor: 3\tConfigs: min.insync.replicas=2
\tTopic: busy\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3\tElr: \tLastKnownElr: 
\tTopic: busy\tPartition: 1\tLeader: none\tReplicas: 2,3,1\tIsr: 3\tElr: 1\tLastKnownElr: 
"""  # noqa: W291 as the tool prints it
OLD = """\
Topic:busy\tPartitionCount:1\tReplicationFactor:3\tConfigs:
\tTopic: busy\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,3
"""


def test_a_listing_says_who_is_out_of_the_isr() -> None:
    said = listing_sentence("d.txt", parse_listing(NEW.splitlines()))
    assert said.startswith("Out of the ISR by d.txt: broker 1 of busy-1; broker 2 of busy-1 (2 partitions). Without a ")
    assert "leader: busy-1." in said
    whole = listing_sentence("d.txt", parse_listing(NEW.splitlines()[:2]))
    assert whole.startswith("By d.txt all replicas are in their ISR (1 partitions). A listing")


def test_a_listing_of_today_is_read() -> None:
    found = parse_listing(NEW.splitlines())
    assert found.partitions == [
        Listed("busy", 0, 1, (1, 2, 3), (1, 2, 3), (), ()),
        Listed("busy", 1, -1, (2, 3, 1), (3,), (1,), ()),
    ]
    assert found.topic_ids == {"QOGIGkfUTjeQvN1wX98dSQ": "busy"}
    assert found.min_isr == {"busy": 2}


@pytest.mark.parametrize(
    ("printed", "elr", "last_known"),
    [
        ("\tElr: N/A\tLastKnownElr: N/A", None, None),  # the brokers are older than the tool
        ("\tElr: \tLastKnownElr: ", (), ()),
        ("\tElr: 2,3\tLastKnownElr: 1", (2, 3), (1,)),
        ("\tAdding Replicas: 4\tRemoving Replicas: \tElr: 2\tLastKnownElr: ", (2,), ()),
        ("", None, None),
    ],
)
def test_eligible_leader_replicas_as_the_tool_prints_them(
    printed: str, elr: tuple[int, ...] | None, last_known: tuple[int, ...] | None
) -> None:
    line = f"\tTopic: busy\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1{printed}"
    assert parse_listing([line]).partitions == [Listed("busy", 0, 1, (1, 2, 3), (1,), elr, last_known)]


def test_a_listing_of_the_time_of_zookeeper_is_read() -> None:
    assert parse_listing(OLD.splitlines()).partitions == [Listed("busy", 0, 1, (1, 2, 3), (1, 3))]


@pytest.mark.parametrize(
    "line",
    [
        "Topic: busy\tPartition: 99999999999\tLeader: 1\tReplicas: 1\tIsr: 1",
        "Topic: busy\tPartition: 0\tLeader: x\tReplicas: 1\tIsr: 1",
        "Topic: busy\tPartition: 0\tLeader: 1\tReplicas: 1,-2\tIsr: 1",
        "Topic: busy\tPartition: 0\tLeader: 1",
        "WARN Something else (org.apache.kafka)",
    ],
)
def test_other_lines_are_passed_over(line: str) -> None:
    assert parse_listing([line]).partitions == []


def folder(tmp_path: Path, **files: str) -> Path:
    broker = tmp_path / "broker-1"
    broker.mkdir()
    (broker / "request.log").write_text("x\n")
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text)
    return tmp_path


def test_a_listing_is_recognized_by_its_content(tmp_path: Path) -> None:
    found = find_logs(folder(tmp_path, topics__txt=NEW, notes__txt="nothing", metadata__txt=OLD))
    assert [file.name for file in found.of_kind(SNAPSHOT)] == ["metadata.txt", "topics.txt"]
    assert not found.of_kind(METADATA)
    assert not is_listing(tmp_path / "gone.txt")


def test_a_damaged_listing_gives_its_readable_part_and_the_damage(tmp_path: Path) -> None:
    packed = gzip.compress(NEW.encode() + b"x" * 100_000)
    for name, data in (("cut.txt.gz", packed[:-20]), ("no.txt.gz", b"Topic: nothing of the kind")):
        (tmp_path / name).write_bytes(data)
    listing, bad = read_listing(tmp_path / "cut.txt.gz")
    assert (len(listing.partitions), bad.reason if bad else None) == (2, "truncated or corrupt gzip file")
    assert is_listing(tmp_path / "cut.txt.gz")
    assert not is_listing(tmp_path / "no.txt.gz")


def test_a_decoded_checkpoint_is_metadata(tmp_path: Path) -> None:
    found = find_logs(folder(tmp_path, checkpoint__txt="Dumping x.checkpoint\n"))
    assert [file.name for file in found.of_kind(METADATA)] == ["checkpoint.txt"]


def test_an_operators_statements_are_read(tmp_path: Path) -> None:
    found = find_logs(folder(tmp_path, cluster__yaml="release: 3.6.2\nreplica.lag.time.max.ms: 10000\n"))
    assert found.given == ClusterSettings("3.6.2", 10_000)


@pytest.mark.parametrize("text", ["relase: 3.6", "release: newest", "min.insync.replicas: two", "- 3.6", "a: b: c"])
def test_mistakes_in_statements_are_reported(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"cluster\.yaml"):
        find_logs(folder(tmp_path, cluster__yaml=text))


@pytest.mark.parametrize(
    ("text", "good"), [("3.6.2", True), ("0.10.1.1", True), ("0.7", False), ("4", False), ("x", False)]
)
def test_releases(text: str, good: bool) -> None:
    assert is_release(text) is good


def test_without_a_follower_nothing_is_started(tmp_path: Path) -> None:
    where = folder(tmp_path)
    with pytest.raises(NoInputError, match="no follower fetch"):
        require_follower_fetches(str(where), [find_logs(where)])
    (where / "broker-1" / "request.log").rename(where / "broker-1" / "server.log")
    with pytest.raises(NoInputError, match="no request log"):
        require_follower_fetches(str(where), [find_logs(where)])


@pytest.mark.parametrize(
    "text", ['{"request":{"replicaId":2,', "{replica_id=3,max_wait", "ClientId: x; ReplicaId: 3; "]
)
def test_a_follower_is_seen_in_any_format(tmp_path: Path, text: str) -> None:
    where = folder(tmp_path)
    (where / "broker-1" / "request.log").write_text(f"{text}\n")
    require_follower_fetches(str(where), [find_logs(where)])
