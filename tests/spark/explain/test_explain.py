"""The story and the picture of one shrink, of a log that can be worked out by hand.

One partition of three replicas, the lag time is 4 s. From noon on there is an append every 100 ms, and 1 ms later a
fetch of all below it. Replica 3 sleeps from its 50th fetch (12:00:04.901) until 12:00:20.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from isr_batch.errors import NoInputError, UsageError
from isr_batch.explain.shrink_data import LAST_FETCHES, explain_shrink
from isr_batch.explain.shrink_text import FetchInText, OtherRuleInText
from isr_batch.explain.swimlane import draw_swimlane, require_swimlane_file
from isr_batch.explain.swimlane_data import (
    BROKERS,
    fetch_phases_on_lane,
    isr_spans_on_lane,
    swimlane_scene,
    swimlane_span,
)  # fmt: skip
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, BROKER_EVENTS, FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from isr_batch.replay.replay import replay, rule_runs
from isr_batch.settings import ReplaySettings
from isr_batch.window import AskedTime
from pipelines import cli
from tests.spark.replay.test_replay import DAY, SET, at

NOON = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() * 1e6)
RULES = ["kafka-3.7", "true-lag", "kafka-10853-hw"]


def us(ms: float) -> int:
    return NOON + round(1000 * ms)


@pytest.fixture(scope="module")
def slept(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark_session, str(tmp_path_factory.mktemp("explain")), "test")

    def put(table: Table, query: str) -> None:
        rows = spark_session.sql(query)
        missing = [column for column in table.columns if column.name not in rows.columns]
        lake.replace(table, rows.selectExpr("*", *(f"CAST(NULL AS {c.type}) AS {c.name}" for c in missing)), "true")

    put(
        LEADER_EPOCHS,
        f"""SELECT {SET}, {at("0")} AS start_time, {at("30000")} AS end_time, 0L AS start_offset,
        0L AS start_high_watermark, array(1, 2, 3) AS assigned, array(1, 2, 3) AS isr_at_start,
        4000L AS replica_lag_time_max_ms, 2 AS min_insync_replicas, '4.1.0' AS broker_version, 0L AS check_origin_ms,
        'unknown' AS check_origin_source, DATE'{DAY}' AS event_date""",
    )
    put(
        APPEND_LOG,
        f"""SELECT {SET}, {at("id * 100")} AS append_time, id AS base_offset, id + 1 AS log_end_offset,
        if(id < 10, 1, -1) AS acks, 0 AS error_code, DATE'{DAY}' AS event_date FROM range(300)""",
    )
    # Awake again, replica 3 first asks from where it was, and half a step later than the other from then on.
    put(
        FETCH_LOG,
        f"""SELECT {SET}, r AS replica_id, {at("t")} AS arrival_time, {at("t + 1")} AS handled_time,
        {at("t + 2")} AS processed_time, {at("t + 40")} AS released_time, {at("t + 41")} AS completed_time,
        o AS fetch_offset, 'appends' AS leader_leo_source, 0 AS error_code, 1 AS run_length,
        {at("t + 1")} AS last_handled_time, DATE'{DAY}' AS event_date FROM (
          SELECT r, id * 100 + if(r = 3 AND id > 200, 51, 1) AS t, if(r = 3 AND id = 200, 50, id + 1) AS o
          FROM range(300) LATERAL VIEW explode(array(2, 3)) AS r WHERE r = 2 OR id < 50 OR id >= 200)""",
    )
    put(
        OBSERVED_ISR_CHANGES,
        f"""SELECT {SET}, {at("10002")} AS change_time, 'shrink' AS kind, 3 AS replica_id, array(1, 2, 3) AS isr_before,
        array(1, 2) AS isr_after, 'leader' AS made_by, DATE'{DAY}' AS event_date""",
    )
    put(
        BROKER_EVENTS,
        f"""SELECT 'c' AS cluster_id, 1 AS broker_id, {at("5500")} AS event_time, {at("6000")} AS end_time,
        'silent' AS kind, DATE'{DAY}' AS event_date""",
    )
    replay(lake, rule_runs(ReplaySettings(rules=RULES)))
    return lake


def test_facts_of_a_shrink(slept: Lake) -> None:
    story = explain_shrink(slept, "t", 0, AskedTime(us(12_000)), "kafka-3.7")
    assert (story.change_us, story.lag_time_ms, story.min_insync_replicas) == (us(10_000), 4000, 2)
    assert (story.isr_before, story.isr_after) == ((1, 2, 3), (1, 2))
    assert (story.leader_log_end_offset, story.high_watermark) == (100, 50)
    assert story.silences == ((1, us(5500), us(6000)),)
    (follower,) = story.dropped
    assert (follower.replica_id, follower.verdict, follower.causes) == (3, "genuine", ("follower_stopped",))
    assert (follower.last_caught_up_time_ms, follower.lag_ms) == (us(4902) // 1000, 5098)
    assert (follower.follower_log_end_offset, follower.true_log_end_offset) == (50, 50)
    # It lacks what was appended from 12:00:05.000 on, and all since it was caught up.
    assert (follower.true_lag_ms, follower.appends, follower.records, follower.lacked_appends) == (5000, 50, 50, 50)
    assert follower.acknowledged_offset == 10
    assert follower.leader_silent_ms == 500
    assert [fetch.fetch_offset for fetch in follower.fetches] == list(range(51 - LAST_FETCHES, 51))
    last = follower.fetches[-1]
    assert last == FetchInText(us(4901), us(4902), us(4903), us(4941), us(4942), 50, 50, 0)
    assert (last.inside_us, last.wait_us) == (3000, 38_000)
    assert follower.next_arrival_us == us(20_001)
    assert follower.restored_us == us(20_153)
    assert (follower.observed_us, follower.observed_by) == (us(10_002), "leader")
    true_lag, hw = follower.stands
    # The clairvoyant does not wait for a check, but goes by what is missing since 12:00:05.000, in whole milliseconds.
    # The leader was silent for 0.5 s of the 4.1 s without a fetch until then.
    assert (true_lag.run, true_lag.stand, true_lag.primary_cause) == ("true-lag", "made", "slow_leader")
    assert true_lag.at_us in {us(9000), us(9001)}
    assert hw == OtherRuleInText("kafka-10853-hw", "kept")


def test_unknown_shrinks(slept: Lake) -> None:
    for topic, partition, rule, message, hint in (
        ("tt", 0, "kafka-3.7", "no topic tt", "did you mean t?"),
        ("t", 1, "kafka-3.7", "no partition 1", "it has 0"),
        ("t", 0, "kafka-0.8", "no replay of kafka-0.8", "--rules kafka-0.8"),
        ("t", 0, "kafka-10853-hw", "drops no follower from t-0", "makes no shrink in this lake"),
    ):
        with pytest.raises(NoInputError, match=message) as raised:
            explain_shrink(slept, topic, partition, AskedTime(us(0)), rule)
        assert hint in raised.value.hint
    with pytest.raises(UsageError, match=r"no rule kafka-3\.8"):
        explain_shrink(slept, "t", 0, AskedTime(us(0)), "kafka-3.8")


def test_scene_and_picture(slept: Lake, tmp_path: Path) -> None:
    story = explain_shrink(slept, "t", 0, AskedTime(us(10_000)), "kafka-3.7")
    # From the fetch before the last one until it is back, and a tenth of that on either side.
    within = (us(4801 - 1535.2), us(20_153 + 1535.2))
    assert swimlane_span(story) == within
    drawn = swimlane_scene(slept, story)
    assert (drawn.from_us, drawn.until_us) == within
    assert drawn.members == {
        (3, BROKERS): ((within[0], us(10_002)),),
        (3, "kafka-3.7"): ((within[0], us(10_000)), (us(20_153), within[1])),
        (3, "kafka-10853-hw"): (within,),
        (3, "true-lag"): drawn.members[3, "true-lag"],
    }
    assert len(drawn.members[3, "true-lag"]) == 2
    # The state that the stretch begins with is older than itself.
    assert drawn.leader[0][0] < within[0] < drawn.leader[1][0]
    fetches = drawn.fetches[3]
    assert (fetches[0].arrival_us, fetches[-1].arrival_us) == (us(3301), us(21_651))
    assert fetch_phases_on_lane(fetches[0])[2:] == [
        ("wait", us(3303), us(3341)),
        ("overdue or sent", us(3341), us(3342)),
    ]
    for suffix, start in ((".svg", b"<svg"), (".png", b"\x89PNG"), (".html", b"<!DOCTYPE html>")):
        file = tmp_path / f"picture{suffix}"
        require_swimlane_file(file)
        draw_swimlane(drawn, story, file)
        assert file.read_bytes().lstrip().startswith(start)
    svg = (tmp_path / "picture.svg").read_text()
    for text in ("kafka-3.7 drops broker 3", "broker 3 in the ISR", "kafka-10853-hw", BROKERS, "caught up", "12:00:10"):
        assert text in svg
    members = drawn.members | {(3, run): (within,) for run in ("majority", "peer-outlier")}
    late = replace(drawn, members=members, unlogged=((within[0], us(5000)),))
    draw_swimlane(late, story, tmp_path / "late.svg")
    grey = (tmp_path / "late.svg").read_text()
    assert "kafka-10853-hw, majority and 1 more" in grey
    assert grey.count("#d9d9d9") >= svg.count("#d9d9d9") + 3, "a band in each of three lanes"
    with pytest.raises(UsageError, match=r"picture\.pdf"):
        require_swimlane_file(tmp_path / "picture.pdf")


def test_spans_of_membership() -> None:
    assert isr_spans_on_lane(member=True, changes=[], within=(10, 20)) == ((10, 20),)
    assert isr_spans_on_lane(member=False, changes=[], within=(10, 20)) == ()
    changes = [(5, "shrink"), (8, "expand"), (12, "shrink"), (15, "expand")]
    assert isr_spans_on_lane(member=True, changes=changes, within=(10, 20)) == ((10, 12), (15, 20))
    assert isr_spans_on_lane(member=True, changes=changes[:1], within=(10, 20)) == ()


def test_command(slept: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "picture.svg"
    options = ["--lake", slept.root, "--topic", "t", "--partition", "0", "--at", "2026-01-01T12:00:00", "--quiet"]
    with pytest.raises(SystemExit) as exited:
        cli.main(["explain", *options, "--out", str(file), "--json"])
    assert not exited.value.code
    told = json.loads(capsys.readouterr().out)
    assert (told["rule"], told["change_us"], told["dropped"][0]["replica_id"]) == ("kafka-3.7", us(10_000), 3)
    assert file.read_text().startswith("<svg")
    with pytest.raises(SystemExit) as exited:
        cli.main(["explain", *options, "--rule", "kafka-10853-hw"])
    assert exited.value.code == 3
    assert "drops no follower" in capsys.readouterr().err
