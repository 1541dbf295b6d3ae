"""Records that an heir would lack, and records hidden from consumers: by SQL and in one pass, against every instant."""

from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.scoring.heir_offsets import with_heir_offsets
from isr_batch.scoring.hidden_records import HIDDEN
from isr_batch.simulation.proposal_examples import START_MS
from tests import naive_heir_offsets as naive
from tests.naive_truth import APPEND, FETCH, Term
from tests.naive_truth import Row as LogRow
from tests.strategies import Log, Setting
from tests.unit.kernel.test_kernel_against_naive import replay

SET = {"cluster_id": "c", "topic": "t", "partition_id": 0, "leader_epoch": 3, "leader_id": 1}
RUN = {"rule": "kafka-3.7", "params_json": "{}"}
_INT, _LONG, _INTS = pa.int32(), pa.int64(), pa.list_(pa.int32())
_SET = [(name, pa.string() if isinstance(value, str) else _INT) for name, value in SET.items()]
_RUN = [*_SET, *((name, pa.string()) for name in RUN)]
_TIME = pa.timestamp("us")
SPANS = pa.schema([*_RUN, ("from_us", _LONG), ("until_us", _LONG), ("isr", _INTS), ("min_insync_replicas", _INT),
                   ("elr", _INTS), ("heir_id", _INT), ("elr_if_on", _INTS), ("heir_if_on", _INT), ("active", _INTS),
                   ("offline_if_leader_dies", pa.bool_())])  # fmt: skip
TABLES = {
    "partition_timeline": pa.schema([
        *_RUN, ("time", _TIME), ("leader_log_end_offset", _LONG), ("high_watermark", _LONG)
    ]),
    "replica_changes": pa.schema([
        *_RUN, ("time", _TIME), ("replica_id", _INT), ("follower_log_end_offset", _LONG)
    ]),
    "append_log": pa.schema([*_SET, ("append_time", _TIME), ("log_end_offset", _LONG), ("acks", _INT)]),
}  # fmt: skip
DAY_0 = date(1970, 1, 1)
LACKED = (
    "lost_records_max", "lost_us", "elr_below_high_watermark", "lost_by_first_active_max", "lost_by_longest_log_max",
)  # fmt: skip
FOUND = (*LACKED, *HIDDEN)
Row = dict[str, Any]


def found(
    *cases: tuple[list[Row], list[Row], list[Row], list[Row]], day_with_timelines: date = DAY_0
) -> list[list[Row]]:
    """Result for each case's spans; each is a separate partition."""
    tables = {
        name: pa.Table.from_pylist(
            [
                SET | RUN | row | {"partition_id": number, "time": row["at_us"], "append_time": row["at_us"]}
                for number, case in enumerate(cases)
                for row in case[place]
            ],
            schema,
        )
        for place, (name, schema) in enumerate(TABLES.items(), 1)
    }
    tables["rule_runs"] = pa.table(
        {name: [value] for name, value in RUN.items()} | {"event_date": [day_with_timelines]}
    )
    spans = [SET | RUN | span | {"partition_id": number} for number, case in enumerate(cases) for span in case[0]]
    with InProcess(None) as engine:  # type: ignore[arg-type]  # it reads nothing of a lake
        answer = with_heir_offsets(engine, pa.Table.from_pylist(spans, SPANS), tables).sort_by("from_us").to_pylist()
    return [
        [{name: row[name] for name in FOUND} for row in answer if row["partition_id"] == number]
        for number in range(len(cases))
    ]


def test_spans_have_the_loss_of_their_worst_instant() -> None:
    cases = [naive.term(seed) for seed in range(200)]
    lost = below = hidden = unclean = 0
    for (spans, *rows), answer in zip(cases, found(*cases), strict=True):
        expected = [expected_of(span, *rows) for span in spans]
        for row, wanted in zip(answer, expected, strict=True):
            area = wanted["visibility_age_area"]
            assert row == wanted | {"visibility_age_area": area and pytest.approx(area, rel=1e-9)}
        hidden += sum(bool(row["hidden_record_us"]) for row in expected)
        unclean += sum(bool(row["lost_by_longest_log_max"]) for row in expected)
        lost += sum(bool(row["lost_records_max"]) for row in expected)
        below += sum(bool(row["elr_below_high_watermark"]) for row in expected)
    assert lost > 100, "many spans lack something"
    assert min(below, hidden, unclean) > 50


def expected_of(span: Row, partition: list[Row], replica: list[Row], appends: list[Row]) -> Row:
    """Nulls for what the span is not about."""
    answer = dict.fromkeys(FOUND)
    if len(span["isr"]) < span["min_insync_replicas"]:
        answer |= naive.hidden(span, partition)
        looked_at = span
    else:
        looked_at = span | {"heir_id": None, "elr": []}
    if looked_at["heir_id"] or looked_at["elr"] or (span["offline_if_leader_dies"] and span["active"]):
        answer |= naive.lacking(looked_at, partition, replica, appends)
    return answer


def us(seconds: float) -> int:
    return START_MS * 1000 + round(seconds * 1e6)


def by_today_s_rule(
    end: float, *rows: tuple[float, int, int], isr: tuple[int, ...] = (1, 2, 3)
) -> tuple[list[Row], list[Row], list[Row], list[Row]]:
    """Two replicas required. Rows: time, a follower that fetches or the acks of an append, and an offset.

    Returns the span in which the leader is alone, and what the timelines have.
    """
    log = [
        LogRow(us(at), FETCH, who, offset, 0, -1, *[us(at)] * 4) if who > 1 else LogRow(us(at), APPEND, 0, offset, who)
        for at, who, offset in rows
    ]
    term = Term((1, 2, 3), 1, us(0), us(end), 100, 100, isr, leader_is_new=True, rows=tuple(log))
    (result,) = replay(Log((term,)), [Setting("kafka-3.7", 10_000, 2)])
    alone = [row.time_us for row in result["partition"] if row.isr == {1}]
    span = {"from_us": alone[0], "until_us": us(end), "isr": [1], "min_insync_replicas": 2, "elr": [], "heir_id": None,
            "active": [2, 3], "offline_if_leader_dies": True}  # fmt: skip
    partition = [
        {"at_us": row.time_us, "leader_log_end_offset": row.log_end_offset, "high_watermark": row.high_watermark}
        for row in result["partition"]
    ]
    replica = [
        {"at_us": row.time_us, "replica_id": row.replica_id, "follower_log_end_offset": row.log_end_offset}
        for row in result["replica"]
    ]
    appends = [{"at_us": us(at), "log_end_offset": offset, "acks": who} for at, who, offset in rows if who <= 1]
    return [span], partition, replica, appends


def test_an_unclean_election_by_order_and_by_the_longest_log() -> None:
    """The leader dies at 35.0: there is no clean heir without ELR. The first, 2, lacks 110 to 150, and 3 120 to 150."""
    case = by_today_s_rule(
        35, (1.0, -1, 110), (1.1, 2, 110), (1.1, 3, 110), (2.0, 1, 120), (2.1, 3, 120), (15.9, 3, 120), (16.0, 1, 140),
        (31.0, 1, 150),
    )  # fmt: skip
    (span,) = case[0]
    assert span["from_us"] == us(30)
    ((row,),) = found(case, day_with_timelines=date(2024, 1, 1))
    assert (row["lost_by_first_active_max"], row["lost_by_longest_log_max"]) == (40, 30)
    with_elr = span | {"elr": [3], "heir_id": 3, "offline_if_leader_dies": False}
    ((row,),) = found(([with_elr], *case[1:]), day_with_timelines=date(2024, 1, 1))
    assert (row["lost_records_max"], row["lost_by_first_active_max"]) == (30, None)


def test_records_that_a_frozen_high_watermark_hides() -> None:
    """The leader is alone until another is back at 31.0; a record is appended at 11.0 and one at 12.0."""
    case = by_today_s_rule(31, (11.0, 1, 101), (12.0, 1, 102), isr=(1,))
    ((row,),) = found(case, day_with_timelines=date(2024, 1, 1))
    assert row["frozen_us"] == row["visibility_age_max_us"] == 20_000_000
    assert row["visibility_age_area"] == 200.0
    assert row["hidden_record_us"] == 39_000_000


def test_without_offsets_the_loss_is_that_of_the_eligible() -> None:
    span = {"from_us": 10, "until_us": 20, "isr": [1], "min_insync_replicas": 2, "elr_if_on": [2], "heir_if_on": 2}
    mark, end = {"at_us": 5, "high_watermark": 7}, {"at_us": 5, "replica_id": 2, "follower_log_end_offset": 7}
    append = {"at_us": 12, "log_end_offset": 11, "acks": 1}
    assert found(([span], [mark], [end], [append])) == [
        [dict.fromkeys(FOUND) | {"lost_records_max": 4, "lost_us": 12, "elr_below_high_watermark": 0}]
    ]
    # The timelines are of another day.
    answers = found(([span], [mark], [end], [append]), day_with_timelines=date(1970, 1, 2))
    assert answers == [[dict.fromkeys(FOUND)]]
