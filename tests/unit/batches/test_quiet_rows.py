"""Quiet stretches in the stream of a replay: passed over, or unpacked, they give the same results."""

from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.segments import in_pieces, packed_stream, segments_of
from tests.unit.batches.test_fetch_runs import stream
from tests.unit.kernel.test_quiet import MostlyQuiet, runs_of
from udfs.batches import segments
from udfs.batches.quiet_rows import QuietRows, unpacked_quiet
from udfs.batches.replay import SetReplay, replay_batches
from udfs.batches.results import SCORED
from udfs.batches.rule_runs import RuleRun
from udfs.batches.segment_stream import one_row_an_event
from udfs.batches.segments import OF_FETCHES, DamagedSegmentError
from udfs.records import APPEND, ROW_ORDER, SILENCE

LOGS = 40


def log_in_rows(number: int) -> list[dict[str, Any]]:
    """Rows of a mostly quiet log, as the stream has them."""
    rows = stream(MostlyQuiet(number).log(), 0, runs_of(Random(number), 1)[0], b"\0")
    return [row | (dict.fromkeys(OF_FETCHES, -1) if row["kind"] == APPEND else {}) for row in rows]


def packed(rows: list[dict[str, Any]], rows_a_segment: int) -> list[dict[str, Any]]:
    with patch.object(segments, "SEGMENT_ROWS", rows_a_segment):
        return segments_of(rows)


def plain(segment: dict[str, Any]) -> dict[str, Any]:
    return segment | {"quiet": None}


def replayed(
    rows: list[dict[str, Any]], packed_rows: list[dict[str, Any]], runs: list[RuleRun]
) -> list[dict[str, Any]]:
    batches = in_pieces(packed_stream(rows, packed_rows), [7, 20])
    found = [row for batch in replay_batches(batches, runs, SCORED) for row in batch.to_pylist()]
    return sorted(found, key=repr)


def test_a_replay_that_passes_over_stretches_gives_the_same() -> None:
    passed_over = []
    pass_over = SetReplay.pass_over

    def counted(self: SetReplay, piece: QuietRows, rows: Any) -> Any:
        passed_over.append(piece)
        return pass_over(self, piece, rows)

    for number in range(LOGS):
        random = Random(number)
        runs = [
            RuleRun(run.rule, {"replica_lag_time_max_ms": run.replica_lag_time_max_ms, **dict(run.flags)})
            for run in runs_of(random, random.choice([1, 5]))
        ]
        runs += [RuleRun(rule) for rule in ("phi-accrual", "majority") if random.random() < 0.3]
        rows = log_in_rows(number)
        several = packed(rows, random.choice([30, 60, 200]))
        with patch.object(SetReplay, "pass_over", counted):
            quiet = replayed(rows, several, runs)
        assert quiet == replayed(rows, [plain(segment) for segment in several], runs), number
    assert len(passed_over) > 5 * LOGS


def test_rows_come_out_as_they_went_in_and_none_is_within_a_stretch() -> None:
    stretches = 0
    for number in range(LOGS):
        rows = log_in_rows(number)
        several = packed(rows, 50)
        batches = []
        for piece in one_row_an_event(in_pieces(packed_stream(rows, several), [5, 9]), quiet=True):
            stretches += isinstance(piece, QuietRows)
            batches.append(piece.rows() if isinstance(piece, QuietRows) else piece)
        found = pa.Table.from_batches(batches).to_pylist()
        names = [name for name in found[0] if name != "term"]
        assert [[row[name] for name in names] for row in found] == [[row.get(name) for name in names] for row in rows]
    assert stretches > 5 * LOGS


def test_a_stretch_with_another_row_in_it_is_unpacked() -> None:
    number = next(n for n in range(99) if any(segment["quiet"] for segment in packed(log_in_rows(n), 50)))
    rows = log_in_rows(number)
    several = packed(rows, 50)
    segment = next(segment for segment in several if segment["quiet"])
    around = unpacked_quiet(segment["quiet"])
    assert around is not None
    quiet = around.quiet[0]
    key = {name: segment[name] for name in ("cluster_id", "topic", "partition_id", "leader_id")}
    for at_us, whole in ((quiet["from_us"], False), (quiet["until_us"], False), (quiet["until_us"] + 1, True)):
        fact = rows[0] | key | {"term": None, "kind": int(SILENCE), "time_us": int(at_us), "until_us": int(at_us)}
        given = sorted([*rows, fact], key=lambda row: [row[name] or 0 for name in ROW_ORDER])
        pieces = one_row_an_event(in_pieces(packed_stream(given, [segment])), quiet=True)
        assert any(isinstance(piece, QuietRows) for piece in pieces) == whole, at_us


def test_a_damaged_stretch_is_reported() -> None:
    rows = log_in_rows(0)
    several = [segment for segment in packed(rows, 50) if segment["quiet"]]
    damaged = several[0]["quiet"][:-1] + bytes([several[0]["quiet"][-1] ^ 1])
    stream_of_it = packed_stream([], [several[0] | {"quiet": damaged}])
    with pytest.raises(DamagedSegmentError, match=r"the segment of .* is damaged: the checksum of its quiet stretch"):
        list(one_row_an_event(in_pieces(stream_of_it), quiet=True))


def test_a_stretch_of_another_version_is_unpacked() -> None:
    rows = log_in_rows(0)
    several = [segment for segment in packed(rows, 50) if segment["quiet"]]
    other = several[0] | {"quiet": b"abcd" + several[0]["quiet"][4:]}
    (piece,) = one_row_an_event(in_pieces(packed_stream([], [other])), quiet=True)
    assert isinstance(piece, pa.RecordBatch)
    assert piece.num_rows == other["events"]
