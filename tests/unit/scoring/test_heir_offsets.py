"""Records that an heir would lack: by SQL and in one pass, against every instant."""

from datetime import date
from typing import Any

import pyarrow as pa

from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.scoring.heir_offsets import with_heir_offsets
from tests import naive_heir_offsets as naive

SET = {"cluster_id": "c", "topic": "t", "partition_id": 0, "leader_epoch": 3, "leader_id": 1}
RUN = {"rule": "kafka-3.7", "params_json": "{}"}
_INT, _LONG, _INTS = pa.int32(), pa.int64(), pa.list_(pa.int32())
_SET = [(name, pa.string() if isinstance(value, str) else _INT) for name, value in SET.items()]
_RUN = [*_SET, *((name, pa.string()) for name in RUN)]
_TIME = pa.timestamp("us")
SPANS = pa.schema([*_RUN, ("from_us", _LONG), ("until_us", _LONG), ("isr", _INTS), ("min_insync_replicas", _INT),
                   ("elr", _INTS), ("heir_id", _INT), ("elr_if_on", _INTS), ("heir_if_on", _INT)])  # fmt: skip
TABLES = {
    "partition_timeline": pa.schema([*_RUN, ("time", _TIME), ("high_watermark", _LONG)]),
    "replica_changes": pa.schema([
        *_RUN, ("time", _TIME), ("replica_id", _INT), ("follower_log_end_offset", _LONG)
    ]),
    "append_log": pa.schema([*_SET, ("append_time", _TIME), ("log_end_offset", _LONG), ("acks", _INT)]),
}  # fmt: skip
DAY_0 = date(1970, 1, 1)
FOUND = ("lost_records_max", "lost_us", "elr_below_high_watermark")
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
    lost = below = 0
    for (spans, *rows), answer in zip(cases, found(*cases), strict=True):
        expected = [
            naive.lacking(span, *rows)
            if len(span["isr"]) < span["min_insync_replicas"] and (span["heir_id"] or span["elr"])
            else dict.fromkeys(FOUND)
            for span in spans
        ]
        assert answer == expected
        lost += sum(bool(row["lost_records_max"]) for row in expected)
        below += sum(bool(row["elr_below_high_watermark"]) for row in expected)
    assert lost > 100, "many spans lack something"
    assert below > 50


def test_without_offsets_the_loss_is_that_of_the_eligible() -> None:
    span = {"from_us": 10, "until_us": 20, "isr": [1], "min_insync_replicas": 2, "elr_if_on": [2], "heir_if_on": 2}
    mark, end = {"at_us": 5, "high_watermark": 7}, {"at_us": 5, "replica_id": 2, "follower_log_end_offset": 7}
    append = {"at_us": 12, "log_end_offset": 11, "acks": 1}
    assert found(([span], [mark], [end], [append])) == [
        [{"lost_records_max": 4, "lost_us": 12, "elr_below_high_watermark": 0}]
    ]
    # The timelines are of another day.
    answers = found(([span], [mark], [end], [append]), day_with_timelines=date(1970, 1, 2))
    assert answers == [[dict.fromkeys(FOUND)]]
