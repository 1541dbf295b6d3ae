"""Compare the ISR changes that brokers logged with those that a replay of the brokers' own rule makes.

From log lines about ISR changes, the replay only takes the times of checks: the phase of isr-expiration, logged checks
(``broker_events``), and checks that were late (`isr_batch.scoring.late_checks`). Which replicas leave and join, and all
offsets and times behind these decisions, are computed by the replay. `predict_broker_changes` compares a replay that
does not use such lines at all.
"""

import json
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

import pyarrow as pa

from isr_batch.broker_lines.vendors import apache_release
from isr_batch.errors import NoInputError, QualityGateError
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_sql import quoted
from isr_batch.lake.engines import engine_for
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.lake.lease import leased
from isr_batch.lake.observers import OF_OBSERVERS
from isr_batch.lake.sql_files import text_of
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.lake.tables.outputs import DEPENDS_ON, ISR_CHANGES, REPLAY_CHECK, SHRINK_VERDICTS
from isr_batch.replay.own_changes import own_changes
from isr_batch.replay.terms import JOINED
from isr_batch.scoring.scores import write_scores
from udfs.batches.rule_runs import RuleRun
from udfs.kernel.doubts import AWAKE_US, LATE_FOR_US
from udfs.kernel.partition import CHECK_SLACK_US
from udfs.rules import REGISTRY, rule_of_release

RACE_MS: Final = 5
"""If a fetch or an append is within this many milliseconds of an ISR change, it is unknown which of them came first (a
race), because timestamps are truncated to milliseconds and written some time after the event. With a wider limit,
nearly every mismatch on a busy partition would be a race."""

NEAR_MS: Final = 1
"""Two times that are at most this many milliseconds apart are considered equal, because both Kafka's clock and the
log's timestamps are truncated to milliseconds."""
CLOSE_MS: Final = 100
"""A logged expand may be this many milliseconds later than the replayed one, because the controller records it tens of
milliseconds after the leader's decision."""

UNKNOWN: Final = "unknown"
IN_FLIGHT_MS: Final = 600
_TEXTS: Final = {
    "outside": quoted("outside the time that the leader's request log covers"),
    "warm_up": quoted("within a lag time and a check of where the leader's request log begins"),
    "at_the_end": quoted(
        f"less than {IN_FLIGHT_MS} ms before the leader's request log ends: requests in flight are not in it"
    ),
    "undone": quoted("on a day that is not replayed"),
    "no_server_log": quoted("no server.log of the leader covers this time: the change may not be the leader's"),
    "in_flight_ms": IN_FLIGHT_MS, "race_ms": RACE_MS, "near_ms": NEAR_MS, "close_ms": CLOSE_MS,
    "late_for_us": int(LATE_FOR_US), "awake_us": int(AWAKE_US), "least_us": CHECK_SLACK_US,
}  # fmt: skip
HELD: Final = (
    "leader_epochs", "observed_isr_changes", "isr_changes", "coverage", "controller_records", "broker_events",
    "mapped_clusters", "replayed_days",
)  # fmt: skip
"""Tables that a comparison holds in memory. It reads fetches and appends in batches instead."""
_CHANGE: Final = (*SET_KEY, "rule", "params_json", "replica_id", "kind", "change_time")


@dataclass(frozen=True)
class BrokerCheckSummary:
    """Outcome of a comparison: one row of counts per cluster, leader and kind of change.

    A row counts changes that are ``matched``, ``missing`` (only logged) or ``extra`` (only replayed). ``races`` counts
    unmatched changes near a fetch or append whose order the log does not show, ``unknown`` counts changes at times that
    no log covers, and ``of_observers`` counts logged changes of listed observers, which are not compared.
    Four more columns count matched changes whose figures agree: ``within_100_ms`` (their times),
    ``caught_up_within_1_ms`` and ``caught_up_within_2_ms`` (lastCaughtUpTimeMs), and ``offsets_equal``. The last three
    are null if no log line contains the figure.
    """

    rows: list[dict[str, Any]]

    @property
    def matched(self) -> int:
        """Number of changes that are both logged and replayed."""
        return sum(row["matched"] for row in self.rows)

    @property
    def of_observers(self) -> int:
        """Number of logged changes that are not compared, because no rule changes listed observers."""
        return sum(row["of_observers"] for row in self.rows)

    @property
    def matched_ratio(self) -> float:
        """Number of matched changes divided by that of matched, missing and extra changes; 1 without changes."""
        total = sum(row["matched"] + row["missing"] + row["extra"] for row in self.rows)
        return self.matched / total if total else 1.0


def can_be_compared(lake: Lake) -> bool:
    """Whether the lake may contain ISR changes of the brokers themselves. A user's own tables may lack them."""
    mapped = read_columns(lake, "mapped_clusters", ["cluster_id", "mapped"]).to_pylist()
    of_tables = {row["cluster_id"] for row in mapped if "changes" not in json.loads(row["mapped"])}
    terms = read_columns(lake, "leader_epochs", ["cluster_id", "broker_version"]).to_pylist()
    is_table = {row["cluster_id"] for row in mapped}
    return any(
        row["cluster_id"] not in of_tables and (row["broker_version"] or row["cluster_id"] not in is_table)
        for row in terms
    )


def validate(lake: Lake) -> BrokerCheckSummary:
    """Match the ISR changes that brokers logged with replayed ones, write ``replay_check``, and return its summary.

    If the brokers' own rule makes a change in the replay that the brokers did not log, ``certainty`` of this change is
    set to ``possible``, even if the timestamps allow no other result. If other rules make the same change (shrink or
    expand) of the same follower at the same moment, theirs is set too. The scores are then updated.

    Raises
    ------
    NoInputError
        If the release of the brokers is unknown, or if the rule of their release was not replayed.
    """
    with engine_for(lake, HELD) as engine:
        engine.replace(REPLAY_CHECK, matched(engine, lake))
        tables = {name: engine.table(name) for name in ("isr_changes", REPLAY_CHECK.name)}
        refuted = engine.keep(ask_broker_check(engine, "refuted", tables))
        if engine.listed(engine("SELECT count(*) AS n FROM {refuted}", refuted=refuted))[0]["n"]:
            _mark_possible(engine, lake, refuted)
        return _summary_of_broker_check(engine)


def _mark_possible(engine: LakeEngine, lake: Lake, refuted: Rows) -> None:
    """Copy ``certainty`` and ``depends_on`` of ``refuted`` changes to the result tables, and update the scores."""
    with leased(lake):
        # Spark may compute ``refuted`` again, from isr_changes. Therefore isr_changes is written last.
        for table in (SHRINK_VERDICTS, ISR_CHANGES):
            engine.amend(table, refuted, _CHANGE, "depends_on", "certainty")
        write_scores(lake)


def predict_broker_changes(lake: Lake) -> BrokerCheckSummary:
    """Match logged ISR changes with those of a new replay that does not use log lines about ISR changes.

    Nothing is stored.

    Raises
    ------
    NoInputError
        If the release of the brokers is unknown, or if the rule of their release was not replayed.
    """
    with engine_for(lake, HELD) as engine:
        changes = own_changes(lake, own_rules(engine), pinned=False)
        compared = matched(engine, lake, engine.rows(changes))
        return BrokerCheckSummary(engine.listed(ask_broker_check(engine, "summary", {"replay_check": compared})))


def own_rules(engine: LakeEngine) -> list[RuleRun]:
    """Return one rule run, with default parameters, per rule of the Kafka releases that the brokers ran."""
    terms = _comparable_terms(engine, {name: engine.table(name) for name in HELD})
    return [RuleRun(rule) for rule in _releases_to_check(engine, {"terms": terms})[1]]


def matched(engine: LakeEngine, lake: Lake, changes: Rows | None = None) -> Rows:
    """Return the rows of ``replay_check``. If ``changes`` is None, replayed changes are the lake's ``isr_changes``."""
    tables = compared(engine, lake, changes)
    tables["races"] = _races(engine, tables)
    words = {"depends_on": list(DEPENDS_ON), "words": list(DEPENDS_ON.values())}
    tables["words"] = engine.rows(pa.table(words))
    return ask_broker_check(engine, "replay_check", tables)


def compared(engine: LakeEngine, lake: Lake, changes: Rows | None = None) -> dict[str, Rows]:
    """Return the tables from which `matched` is computed, by name.

    The last of them, ``doubted``, contains each change with its counterpart, or with the reason why it has no
    counterpart.
    """
    tables = {name: engine.table(name) for name in HELD}
    if changes is not None:
        tables["isr_changes"] = changes
    tables["terms"] = engine.keep(_comparable_terms(engine, tables))
    tables["releases"], ran = _releases_to_check(engine, tables)
    if not ran:
        raise _nothing_to_check(engine, lake, tables)
    _require_replayed(engine, lake, ran)
    tables["leaders"] = engine.keep(ask_broker_check(engine, "leaders", tables))
    tables["own_terms"] = engine.keep(ask_broker_check(engine, "own_terms", tables))
    tables["parameters"] = _parameters(engine, tables)
    tables["of_observers"] = engine.keep(engine(OF_OBSERVERS, **tables))
    # Later queries use each of these tables several times, and Spark would compute it again each time.
    for name in ("logged", "replayed", "late_spans", "pairs", "side_by_side", "doubted"):
        tables[name] = engine.keep(ask_broker_check(engine, name, tables))
    return tables


def _comparable_terms(engine: LakeEngine, tables: dict[str, Rows]) -> Rows:
    """Return the terms of leaders, except in clusters whose ISR changes are unknown (users' own tables)."""
    text = """
        SELECT * FROM {terms} AS terms WHERE cluster_id NOT IN (
          SELECT cluster_id FROM {mapped_clusters} AS mapped_clusters WHERE get_json_object(mapped, '$.changes') IS NULL
        )
    """
    return engine(text, **tables, terms=engine(JOINED, **tables))


def _nothing_to_check(engine: LakeEngine, lake: Lake, tables: dict[str, Rows]) -> NoInputError:
    """Return the error that a comparison is impossible, because releases or ISR changes of brokers are unknown."""
    clusters = engine.listed(engine("SELECT cluster_id, mapped FROM {mapped_clusters} ORDER BY 1", **tables))
    if not clusters:
        return NoInputError(
            f"no log in {lake.root} says which release its brokers ran", "there is nothing to compare with"
        )
    names = ", ".join(row["cluster_id"] for row in clusters)
    if any("changes" in json.loads(row["mapped"]) for row in clusters):
        return NoInputError(
            f"the release that the brokers of {names} ran is not known", "name broker_version in the mapping"
        )
    return NoInputError(
        f"the tables of {names} do not have the ISR changes that the brokers made, so there is nothing to compare with",
        "`changes` in the mapping names a table of them; docs/own-tables.md",
    )


def summary(lake: Lake) -> BrokerCheckSummary:
    """Return the summary of the stored ``replay_check``."""
    with engine_for(lake, [REPLAY_CHECK.name]) as engine:
        return _summary_of_broker_check(engine)


def _summary_of_broker_check(engine: LakeEngine) -> BrokerCheckSummary:
    return BrokerCheckSummary(
        engine.listed(ask_broker_check(engine, "summary", {"replay_check": engine.table(REPLAY_CHECK.name)}))
    )


def ask_broker_check(engine: LakeEngine, name: str, tables: dict[str, Rows]) -> Rows:
    """Run the query in the file ``NAME.sql`` of isr_batch/scoring/sql on these tables, and return its result."""
    return engine(text_of("isr_batch.scoring", name, **_TEXTS), **tables)


def _releases_to_check(engine: LakeEngine, tables: dict[str, Rows]) -> tuple[Rows, list[str]]:
    """Return the releases that the brokers ran, and the rules of these releases.

    Returns
    -------
    releases : Rows
        One row per release: ``version``, ``ran`` (the release's rule), ``checks_per_lag_time`` (of that rule).
    rules : list of str
        Names of the rules.
    """
    known = "SELECT DISTINCT broker_version FROM {terms} WHERE broker_version IS NOT NULL ORDER BY broker_version"
    versions = [row["broker_version"] for row in engine.listed(engine(known, **tables))]
    ran = [rule_of_release(apache_release(version)) for version in versions]
    checks = pa.array([REGISTRY[rule].checks_per_lag_time for rule in ran], pa.int32())
    names = {"version": pa.array(versions, pa.string()), "ran": pa.array(ran, pa.string())}
    return engine.rows(pa.table({**names, "checks_per_lag_time": checks})), sorted(set(ran))


def _require_replayed(engine: LakeEngine, lake: Lake, ran: list[str]) -> None:
    """Raise an error if none of the rules that the brokers ran was replayed."""
    scores = engine.table("partition_scores", ["rule"])
    replayed = {row["rule"] for row in engine.listed(engine("SELECT DISTINCT rule FROM {scores}", scores=scores))}
    if not replayed & set(ran):
        raise NoInputError(
            f"{lake.root} has no replay of {', '.join(ran)}, the rule of its brokers",
            f"run `isr-batch replay --rules {','.join(ran)}` first, without --set",
        )


def _parameters(engine: LakeEngine, tables: dict[str, Rows]) -> Rows:
    """Return ``replica_lag_time_max_ms`` and ``min_insync_replicas`` of each ``params_json`` in ``isr_changes``."""
    found = engine.listed(engine("SELECT DISTINCT params_json FROM {isr_changes}", **tables))
    texts = [row["params_json"] for row in found]
    given = [json.loads(text) for text in texts]
    return engine.rows(pa.table({
        "params_json": pa.array(texts, pa.string()),
        "replica_lag_time_max_ms": pa.array([one.get("replica_lag_time_max_ms") for one in given], pa.int64()),
        "min_insync_replicas": pa.array([one.get("min_insync_replicas") for one in given], pa.int32()),
    }))  # fmt: skip


def _races(engine: LakeEngine, tables: dict[str, Rows]) -> Rows:
    """Return the result of query ``races``, from the fetches and appends near unmatched changes (``unexplained``)."""
    unexplained = ask_broker_check(engine, "unexplained", tables)
    ends = "SELECT min(from_us) AS from_us, max(until_us) AS until_us FROM {unexplained}"
    (span,) = engine.listed(engine(ends, unexplained=unexplained))
    first, last = (date(1970, 1, 1) + timedelta(microseconds=us or 0) for us in (span["from_us"], span["until_us"]))
    # Fetches are stored by the day on which they were handled. They may have arrived or ended on another day.
    days = (first - timedelta(days=1), last + timedelta(days=1))
    near = {"fetches": engine.fetches(unexplained, days), "appends": engine.appends(unexplained, days)}
    return ask_broker_check(engine, "races", near)


def require_match(summary: BrokerCheckSummary, min_matched_ratio: float) -> None:
    """Raise if too few ISR changes match between brokers and replay.

    Raises
    ------
    QualityGateError
        If `BrokerCheckSummary.matched_ratio` is below ``min_matched_ratio``.
    """
    if summary.matched_ratio < min_matched_ratio:
        raise QualityGateError(
            f"{summary.matched_ratio:.2%} of the ISR changes agree between replay and brokers "
            f"({summary.matched} of them; the limit is {min_matched_ratio:.2%})",
            "table replay_check lists the changes; validation.min_matched_ratio is the limit",
        )
