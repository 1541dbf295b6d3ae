"""Eligible leaders on recorded clusters: by both engines, compared with the ledger and the records."""

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import SparkSession

from isr_batch.ingest.broker_logs import ingest_broker_logs
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.spark_engine import BySpark
from isr_batch.replay.replay import replay
from isr_batch.scoring.eligible_leaders import eligible_leaders, write_eligible_leaders
from isr_batch.scoring.elr import elr_after
from isr_batch.scoring.scores import write_scores
from tests.spark.broker_logs import TRACES, traces
from udfs.batches.rule_runs import RuleRun

SECOND_US = 1_000_000
Row = dict[str, Any]


def asked(lake: Lake, text: str) -> list[Row]:
    return lake.query(text)[0]


def timed(lake: Lake, table: str, *names: str) -> list[Row]:
    """A table, with some of its times in microseconds."""
    return asked(
        lake, f"SELECT *, {', '.join(f'unix_micros({name}_time) AS {name}_us' for name in names)} FROM {table}"
    )


def plain(rows: list[Row]) -> Counter[str]:
    return Counter(
        str([row[name].replace(tzinfo=None) if name.endswith("_time") and row[name] else row[name] for name in row])
        for row in rows
    )


def test_both_engines_find_the_same(sample_lake: Lake) -> None:
    with InProcess(sample_lake) as here, BySpark(sample_lake) as spark:
        expected = plain(here.listed(eligible_leaders(here, "auto")))
        assert plain(spark.listed(eligible_leaders(spark, "auto"))) == expected
    assert len(expected) > 1000


def test_times_are_those_of_the_ledger(sample_lake: Lake) -> None:
    """The replay's counters, recomputed from the changes of the ISR alone."""
    wrong = asked(
        sample_lake,
        """
        WITH again AS (
          SELECT rule, topic, partition_id, leader_epoch, leader_id, cluster_id, event_date,
            sum(CASE WHEN size(isr) = 1 THEN us ELSE 0 END) AS alone_us,
            sum(CASE WHEN size(isr) < 3 THEN us ELSE 0 END) AS under_replicated_us
          FROM (SELECT *, unix_micros(until_time) - unix_micros(from_time) AS us FROM eligible_leaders)
          GROUP BY ALL
        ), counted AS (
          -- A leader that restarts may take up its former epoch again: two terms of one key.
          SELECT rule, topic, partition_id, leader_epoch, leader_id, cluster_id, event_date,
            sum(leader_alone_us) AS alone_us, sum(under_replicated_us) AS under_replicated_us
          FROM partition_scores GROUP BY ALL
        )
        SELECT * FROM counted c LEFT JOIN again a
          USING (rule, topic, partition_id, leader_epoch, leader_id, cluster_id, event_date)
        WHERE c.alone_us <> coalesce(a.alone_us, 0) OR c.under_replicated_us <> coalesce(a.under_replicated_us, 0)
    """,
    )
    assert wrong == []
    alone = asked(sample_lake, "SELECT sum(leader_alone_us) AS us FROM partition_scores")
    assert alone[0]["us"] > 0


def test_prices_with_and_without_elr(sample_lake: Lake) -> None:
    prices = asked(sample_lake, "SELECT * FROM leader_death_by_rule_and_day")
    assert prices
    for row in prices:
        assert row["unknown_us"] == 0, "the metadata log says that the samples have the feature"
        assert row["offline_if_leader_dies_us"] == row["offline_with_elr_us"] <= row["offline_without_elr_us"]
        assert row["leader_alone_with_heir_us"] <= min(row["leader_alone_us"], row["elr_members_us"])
    by_kind = asked(sample_lake, "SELECT * FROM elections_by_day WHERE cluster_id = 'restart'")
    assert [(row["unclean"], row["last_known_leader"]) for row in by_kind] == [(0, 0)]
    assert by_kind[0]["in_sync"] > 0


def test_scores_have_these_prices(sample_lake: Lake) -> None:
    """Row by row, of each cluster and rule."""
    with_heir: Counter[tuple[str, str]] = Counter()
    offline: Counter[tuple[str, str]] = Counter()
    lost: dict[tuple[str, str], int] = {}
    for row in asked(sample_lake, "SELECT * FROM eligible_leaders"):
        run = row["cluster_id"], row["rule"]
        us = round((row["until_time"] - row["from_time"]).total_seconds() * 1e6)
        with_heir[run] += us * (len(row["isr"]) == 1 and row["heir_id"] is not None)
        offline[run] += us * row["offline_if_leader_dies"]
        if row["lost_records_max"] is not None:
            lost[run] = max(lost.get(run, 0), row["lost_records_max"])
    scores = asked(sample_lake, "SELECT * FROM rule_scores WHERE event_date IS NULL AND topic IS NULL")
    assert len(scores) == 4 * 22
    assert sum(with_heir.values()) > 0
    assert sum(lost.values()) > 0
    for row in scores:
        run = row["cluster_id"], row["rule"]
        assert row["leader_alone_with_heir_seconds"] == with_heir[run] / 1e6
        assert row["offline_if_leader_dies_seconds"] == offline[run] / 1e6
        assert row["lost_if_leader_dies_records_max"] == lost.get(run)


@pytest.fixture(scope="module")
def recorded(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The recorded 4.4.0 cluster, replayed through its own rule."""
    lake = Lake(spark_session, str(tmp_path_factory.mktemp("recorded")), "run-1")
    ingest_broker_logs(lake, TRACES / "k4.4.0", "k4.4.0")
    replay(lake, [RuleRun("kafka-3.7")])
    write_eligible_leaders(lake, "auto")
    write_scores(lake)
    return lake


def states(lake: Lake) -> dict[tuple[str, int], list[Row]]:
    """The records of each partition, in order."""
    found = defaultdict(list)
    rows = asked(
        lake,
        """
        SELECT *, unix_micros(record_time) AS us FROM controller_records WHERE kind IN ('partition', 'cleared')
        ORDER BY record_offset
    """,
    )
    for row in rows:
        found[row["topic"], row["partition_id"]].append(row)
    return found


@traces
@pytest.mark.traces
def test_an_isr_gives_the_elr_that_was_recorded(recorded: Lake) -> None:
    same = changes = 0
    for rows in states(recorded).values():
        for before, after in pairwise(rows):
            if after["kind"] == "cleared":
                assert after["elr"] == []
                continue
            if before["isr"] is None:  # the records that create a topic set min.insync.replicas first
                continue
            isr, elr, wanted = (sum(1 << one for one in each) for each in (before["isr"], before["elr"], after["isr"]))
            same += elr_after(isr, elr, wanted, 0, 2) == sum(1 << one for one in after["elr"])
            changes += 1
    assert (same, changes) == (248, 248)


def heir(record: Row, inactive: set[int]) -> int | None:
    """Who would lead if the leader died, by a record: the ISR first, then the ELR."""
    others = [one for one in record["assigned"] if one not in inactive | {record["leader_id"]}]
    return next((one for able in (record["isr"], record["elr"]) for one in others if one in able), None)


@traces
@pytest.mark.traces
def test_second_by_second_leaders_isr_elr_and_heirs_are_those_of_the_record(recorded: Lake) -> None:
    """A leader commits an ISR some milliseconds before or after the record's time: five looks fall between the two.

    One is 20 ms after its record, before the leader's line. For four, writes of 115 and 251 ms, no line shows how long
    they took, because neither the request of an expand nor an answer after the record is logged: the replay uses the
    median.
    """
    terms = timed(recorded, "leader_epochs", "start", "end")
    spans = timed(recorded, "eligible_leaders", "from", "until")
    events = timed(recorded, "broker_events", "event")
    of_term = defaultdict(list)
    for span in spans:
        of_term[span["topic"], span["partition_id"], span["leader_epoch"]].append(span)
    fencing = sorted(
        (event["event_us"], event["broker_id"], event["kind"] == "unfenced")
        for event in events if event["kind"] in {"fenced", "unfenced", "shutting_down"}
    )  # fmt: skip
    records = states(recorded)
    looks, offline, apart_ms = 0, 0, []
    for term in terms:
        key = term["topic"], term["partition_id"]
        for us in range(-(-term["start_us"] // SECOND_US) * SECOND_US, term["end_us"], SECOND_US):
            active = {broker: back for at_us, broker, back in fencing if at_us <= us}
            record = [row for row in records[key] if row["us"] <= us][-1]
            now = [span for span in of_term[(*key, term["leader_epoch"])] if span["from_us"] <= us < span["until_us"]]
            (ours,) = now or [term | {"isr": term["assigned"], "elr": []}]
            expected = heir(record, {broker for broker, back in active.items() if not back})
            offline += expected is None
            looks += 1
            assert (term["leader_id"], term["leader_epoch"]) == (record["leader_id"], record["leader_epoch"])
            if [sorted(ours[name]) for name in ("isr", "elr")] != [sorted(record[name]) for name in ("isr", "elr")]:
                apart_ms.append(min(abs(row["us"] - us) for row in records[key]) // 1000)
            elif now:
                assert (ours["heir_id"], ours["offline_if_leader_dies"]) == (expected, expected is None)
            else:
                assert expected is not None
    assert (looks, offline, sorted(apart_ms)) == (4804, 26, [13, 13, 13, 20, 36])


@traces
@pytest.mark.traces
def test_the_price_of_the_recorded_cluster(recorded: Lake) -> None:
    """Broker 1 was killed and fenced while 2 was outside the ISR: it was eligible, and could not lead."""
    (price,) = asked(recorded, "SELECT * FROM leader_death_by_rule_and_day")
    assert {name: price[name] for name in price if name.endswith("_us")} == {
        "leader_alone_us": 25_290_707, "leader_alone_with_heir_us": 226_138, "offline_if_leader_dies_us": 25_064_569,
        "unknown_us": 0, "elr_members_us": 25_290_707, "offline_with_elr_us": 25_064_569,
        "offline_without_elr_us": 25_290_707,
    }  # fmt: skip
    assert (price["lost_if_leader_dies_records_max"], price["elr_below_high_watermark"]) == (72, 0)
    assert str(price["lost_if_leader_dies_time"]).startswith("2026-11-25 07:31:13.380")
