"""Rows for a spreadsheet."""

import csv
import io

import pytest

from isr_batch.incidents.own_shrinks import OwnShrinks
from isr_batch.incidents.verdicts_csv import verdicts_csv
from tests.own_shrinks_log import KEY, Log, at, leader_was_silent


def read(own: OwnShrinks) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(verdicts_csv(own, "/my lake"))))


def test_a_row_is_a_drop() -> None:
    log = Log()
    leader_was_silent(log)
    first, second, *_ = rows = read(log.found())
    assert [row["verdict"] for row in rows] == ["genuine", *["spurious"] * 4]
    shrink = f"--topic t --partition 0 --at {int(at(14.5).timestamp() * 1000)} --rule kafka-3.7"
    assert first == {
        "cluster": "c", "time_utc": "2026-01-01 00:00:14.500", "earliest_utc": "", "topic": "t", "partition": "0",
        "leader": "2",
        "follower": "1", "made_by": "leader", "verdict": "genuine", "cause": "follower_stopped", "certainty": "",
        "since_caught_up_ms": "4500", "back_after_ms": "2000", "points_at_broker": "1",
        "points_at": "follower", "incident": "1", "explained_by": f"isr-batch explain {shrink} --lake '/my lake'",
    }  # fmt: skip
    assert (second["leader"], second["follower"], second["cause"]) == ("1", "2", "slow_leader")


def test_unknown_values_are_empty() -> None:
    log = Log()
    log.shrink(60, 2, 3, None)
    (row,) = read(log.found())
    assert (row["verdict"], row["cause"]) == ("unknown", "unknown")
    assert {name for name, cell in row.items() if not cell} == {
        "earliest_utc", "certainty", "since_caught_up_ms", "back_after_ms", "points_at_broker", "points_at",
        "incident", "explained_by",
    }  # fmt: skip


def test_names_may_hold_anything() -> None:
    log = Log()
    log.shrink(30, 1, 3, "spurious", "keeping_pace")
    for rows in log.rows.values():
        for row in rows:
            row["cluster_id"] = 'a,"b\nd'
    log.add("observed_isr_changes", **KEY, leader_id=1, replica_id=2, change_time=at(50), kind="shrink",
            made_by="controller", last_caught_up_time_ms=None)  # fmt: skip
    assert [row["cluster"] for row in read(log.found())] == ['a,"b\\x0ad', "c"]


FORMULAS = {
    "=1+1": "'=1+1", "+1": "'+1", "-2+3": "'-2+3", "@SUM(A1)": "'@SUM(A1)", "  =1": "'  =1", "\xa0=1": "'\xa0=1",
    "\t=1": "'\\x09=1", "\r=1": "'\\x0d=1", "\n=1": "'\\x0a=1", "\0=1": "\\x00=1", "\ufeff=1": "\\ufeff=1",
    "\uff1d1+1": "'\uff1d1+1", "\uff0b1": "'\uff0b1", "\uff0d1": "'\uff0d1", "\uff20A": "'\uff20A",
    "\u22121": "'\u22121", "\ufe621": "'\ufe621", 'a"=1': 'a"=1', "a,=1": "a,=1",
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_no_cell_is_a_formula(name: str) -> None:
    log = Log()
    log.shrink(30, 1, 3, "spurious", "keeping_pace", lag_ms=-5)
    for rows in log.rows.values():
        for row in rows:
            row |= {column: name for column in ("cluster_id", "topic") if column in row}
    (row,) = read(log.found())
    assert row["cluster"] == row["topic"] == FORMULAS[name]
    assert all(line[0] == line[-1] == '"' for line in verdicts_csv(log.found(), "/lake").splitlines())
    assert row["since_caught_up_ms"] == "-5", "numbers are none"
    assert row["explained_by"].startswith("isr-batch explain")
