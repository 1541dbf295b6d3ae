"""How two rules differ: in their functions, and on the first example log where they decide differently."""

import inspect
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import Any

import numpy as np

from isr_batch.replay.kernel_cache import keep_compiled
from isr_batch.simulation.parting_logs import WORKED_LOGS
from isr_batch.simulation.proposal_examples import START_MS, ExampleTerm
from udfs.batches.replay import RuleRun, SetReplay
from udfs.jit import compiled_text
from udfs.records import APPEND, FETCH, UNKNOWN, Rows
from udfs.rules import Rule
from udfs.rules.base import Function

Row = dict[str, Any]
WORDS = ("asked", "a", "b")
DECISIONS = ("at_s", "rule", "what", "replica", "isr", "lag_s", "high_watermark", "log_end_offset")
_SAME = ("at_s", "what", "replica", "isr")
_MOST = 5
"""Number of decisions of each rule that are shown, from the first difference on."""


@dataclass(frozen=True)
class DifferenceOnLog:
    """A worked log on which two rules part.

    Attributes
    ----------
    example : ExampleTerm
    at_s : float
        Seconds from its start until they decide otherwise for the first time.
    decisions : list of dict
        The first of both rules from then on, in order of time, with the keys of DECISIONS: changes of the ISR and of
        leadership, or, where these are the same, moves of the high watermark.
    """

    example: ExampleTerm
    at_s: float
    decisions: list[Row]


def rule_difference_in_words(a: Rule, b: Rule) -> list[Row]:
    """Describe the differences of two rules by the keys of WORDS: one row per function and fact, and parameters."""
    rows: list[Row] = []
    for field in fields(Rule):
        one, other = getattr(a, field.name), getattr(b, field.name)
        if callable(one):
            # Skipping quiet stretches is not a decision of a rule.
            if field.name != "acts_in_quiet" and compiled_text(one) != compiled_text(other):
                rows.append({"asked": field.name, "a": _says(one), "b": _says(other)})
        elif field.name in ("checks_per_lag_time", "isr_write_in_background") and one != other:
            rows.append({"asked": field.name, "a": str(one), "b": str(other)})
    if a.params.keys() != b.params.keys():
        rows.append({"asked": "params", "a": ", ".join(a.params), "b": ", ".join(b.params)})
    return rows


def _says(function: Function) -> str:
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


def first_rule_difference(a: Rule, b: Rule) -> DifferenceOnLog | None:
    """Replay example logs under the rules with their defaults, until the two differ.

    A log on which ISR changes or leadership differ takes precedence over one on which only the high watermark
    differs. None: they are the same on all logs.
    """
    keep_compiled()
    by_high_watermark: DifferenceOnLog | None = None
    for made in WORKED_LOGS:
        example = made()
        (changes_a, marks_a), (changes_b, marks_b) = (_replayed(example, rule) for rule in (a, b))
        if (found := _where(example, (a, b), changes_a, changes_b)) is not None:
            return found
        by_high_watermark = by_high_watermark or _where(example, (a, b), marks_a, marks_b)
    return by_high_watermark


def _where(
    example: ExampleTerm, rules: tuple[Rule, Rule], ours: list[Row], theirs: list[Row]
) -> DifferenceOnLog | None:
    for place, (one, other) in enumerate(zip_longest(ours, theirs)):
        if one is None or other is None or any(one[key] != other[key] for key in _SAME):
            shown = [ours[place : place + _MOST], theirs[place : place + _MOST]]
            at_s = min(rows[0]["at_s"] for rows in shown if rows)
            decisions = [row for rows, rule in zip(shown, rules, strict=True) for row in rows or [_nothing(rule, at_s)]]
            return DifferenceOnLog(example, at_s, sorted(decisions, key=lambda row: float(row["at_s"])))
    return None


def _nothing(rule: Rule, at_s: float) -> Row:
    return dict.fromkeys(DECISIONS) | {"at_s": at_s, "rule": rule.id, "what": "nothing from here on"}


def _replayed(example: ExampleTerm, rule: Rule) -> tuple[list[Row], list[Row]]:
    """Changes under a rule, and where its high watermark moves, as rows of DECISIONS."""
    replay = SetReplay([RuleRun(rule.id)], ("partition", "change"))
    replay.begin_set(("", "", 0, example.replicas[0]))
    batches = [
        *replay.begin_term(_us(0), example.log_end_offset, _term(example)),
        *replay.advance(_rows(example), -1),
        *replay.end_term(),
        *replay.flush(),
    ]
    changes: list[Row] = []
    marks: list[Row] = []
    for row in (row for batch in batches for row in batch.to_pylist()):
        if row["result"] == "change" and row["kind"] != "doubt":
            changes.append(_decision(rule, row, row["kind"]))
        elif row["result"] == "partition" and (not marks or marks[-1]["high_watermark"] != row["high_watermark"]):
            marks.append(_decision(rule, row, f"high watermark {row['high_watermark']}"))
    return changes, marks


def _decision(rule: Rule, row: Row, what: str) -> Row:
    return {
        "at_s": (row["time_us"] // 1000 - START_MS) / 1000, "rule": rule.id, "what": what, "replica": row["replica_id"],
        "isr": ",".join(map(str, row["isr_after"])), "lag_s": None if row["lag_ms"] is None else row["lag_ms"] / 1000,
        "high_watermark": row["high_watermark"], "log_end_offset": row["leader_log_end_offset"],
    }  # fmt: skip


def _us(ms: int) -> int:
    return (START_MS + ms) * 1000


def _term(example: ExampleTerm) -> Row:
    """As ``udfs.batches.stream_columns.TERM_FIELDS`` has it: a new leader, the log known from its start."""
    return {
        "leader_epoch": 0, "end_us": _us(example.end_ms), "high_watermark": example.log_end_offset,
        "assigned": list(example.replicas), "isr_at_start": example.isr or example.replicas, "leader_is_new": True,
        "process_is_new": True, "replica_lag_time_max_ms": example.lag_time_max_ms,
        "min_insync_replicas": example.min_insync_replicas, "check_origin_ms": 0, "isr_write_ms": 0,
        "begins_mid_term": False, "ends_mid_term": False, "offsets_known": True, "phase_known": True, "isr_known": True,
        "held_known": True, "held_at_start": None,
    }  # fmt: skip


def _rows(example: ExampleTerm) -> Rows:
    """Appends and fetches as the kernel takes them; it takes arrays that can't be written to."""
    unknown = int(UNKNOWN)
    rows: list[tuple[int, ...]]
    rows = [(_us(a.time_ms), int(APPEND), 0, a.log_end_offset, a.acks, unknown, 0, 0, 0, 0) for a in example.appends]
    rows += [
        (
            _us(f.arrival_ms), int(FETCH), f.replica_id, f.fetch_offset, 0, unknown,
            *map(_us, (f.handled_ms, f.recorded_ms, f.released_ms, f.completed_ms)),
        )
        for f in example.fetches
    ]  # fmt: skip
    found = Rows(*np.array(sorted(rows, key=lambda row: row[:2]), np.int64).T.copy())
    for column in found:
        column.flags.writeable = False
    return found
