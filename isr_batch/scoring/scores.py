"""Score rules: aggregate the ledger and the verdicts of a replay, in any grouping, such as by day and topic.

The figures of a rule run come from several sources. Each source is aggregated separately, in all groupings at once, and
then the results are combined. Aggregating a union of all sources would take two to three times as long. Both Spark and
DuckDB can run the SQL. docs/verdicts.md defines the figures.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import pyarrow as pa

from isr_batch.lake.engines import engine_for
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine
from isr_batch.lake.lake_engine import Rows as EngineRows
from isr_batch.lake.tables.scores import RULE_SCORES, RULE_SCORES_BY_BROKER
from isr_batch.replay.result_tables import scored_result_tables
from isr_batch.scoring.changes_by_broker import BY_BROKER, changes_by_broker
from isr_batch.scoring.score_sources import DIMENSIONS, RUN, SOURCES
from udfs.rules import REGISTRY

Rows = list[dict[str, Any]]

LAG_TIME_MS: Final = "CAST(get_json_object(params_json, '$.replica_lag_time_max_ms') AS BIGINT)"

REPLICATES: Final = 200
"""Number of bootstrap replicates, enough for two digits of a 95 % interval."""
PRIME: Final = 2**31 - 1
RULE_OF_THREE: Final = 3.0
"""Upper end of the 95 % interval for the expected number of events if none was observed."""
_JUDGED: Final = "verdict IN ('spurious', 'genuine')"


def _seconds_score(name: str) -> str:
    """Return the SQL that sums a column of microseconds, and converts the sum to seconds."""
    return f"sum({name}) / 1e6"


def _percentile_score(name: str, share: float, verdict: str) -> str:
    """Return the SQL for a percentile (``share`` from 0 to 1) of a column over the shrinks with this verdict."""
    return f"percentile(CASE WHEN verdict = '{verdict}' THEN {name} END, {share})"


def _between(share: str) -> str:
    """Return the SQL for a percentile (``share`` from 0 to 1) of ``latency_ms``, weighted by the number of appends.

    It needs two more columns: ``upto``, the number of appends with at most this latency, and ``total``, the number of
    all appends.
    """
    place = f"{share} * (total - 1)"
    low, high = (f"min(CASE WHEN upto > {end}({place}) THEN latency_ms END)" for end in ("floor", "ceil"))
    return f"{low} + ({high} - {low}) * ({share} * (max(total) - 1) - floor({share} * (max(total) - 1)))"


def _longest_of(share: str) -> str:
    """Return the SQL for the wait within which requests are answered in this share of time (`HISTOGRAMS`)."""
    return f"min(CASE WHEN upto >= {share} * total THEN wait_ms END)"


HISTOGRAMS: Final = {"latencies": ("latency_ms", "appends"), "waits": ("wait_ms", "time_us")}
"""For each source of histograms, its columns: of the bucket, and of what the bucket counts."""
AGGREGATES: Final = {
    "costs": {
        "exposure_partition_hours": "sum(exposure_us) / 3.6e9",
        "metadata_writes": "sum(isr_writes)",
        "refused_appends": "sum(refused_appends)",
        "never_acknowledged": "sum(never_acknowledged)",
        "under_min_isr_seconds": _seconds_score("under_min_isr_us"),
        "at_min_isr_seconds": _seconds_score("at_min_isr_us"),
        "leader_alone_seconds": _seconds_score("leader_alone_us"),
        "under_replicated_seconds": _seconds_score("under_replicated_us"),
        "high_watermark_stalled_seconds": _seconds_score("high_watermark_stalled_us"),
        "refused_or_stalled_seconds": _seconds_score("refused_or_stalled_us"),
        "acks_all_latency_ms_max": "max(acks_all_latency_max_us) FILTER (WHERE acknowledged_appends > 0) / 1e3",
        "acks_all_waits_1s_seconds": _seconds_score("acks_all_waits_1s_us"),
        "acks_all_waits_30s_seconds": _seconds_score("acks_all_waits_30s_us"),
        "acks_all_waits_1s_silent_seconds": _seconds_score("acks_all_waits_1s_silent_us"),
        "acks_all_wait_unknown_seconds": _seconds_score("acks_all_wait_unknown_us"),
        "acks_all_wait_ms_max": "max(acks_all_wait_max_us) / 1e3",
        "loss_exposed_seconds": _seconds_score("loss_exposed_us"),
        "loss_records_max": "max(loss_records_max)",
        "high_watermark_decreases": "sum(high_watermark_decreases)",
        "isr_members_below_high_watermark": "sum(members_below_high_watermark)",
        "lag_guarantee_violations": "sum(passed_within_lag_time)",
        "leader_outside_isr": "sum(leader_outside_isr)",
        "isr_outside_assignment": "sum(isr_outside_assignment)",
        "first_violation": "substr(min(first_violation), 21)",
    },
    "heirs": {
        "leader_alone_with_heir_seconds": "sum(CASE WHEN alone AND heir_id IS NOT NULL THEN us ELSE 0 END) / 1e6",
        "offline_if_leader_dies_seconds":
            "CASE WHEN count_if(offline IS NULL) = 0 THEN sum(CASE WHEN offline THEN us ELSE 0 END) / 1e6 END",
        "unclean_needed_seconds":
            "CASE WHEN count_if(offline IS NULL) = 0 "
            "THEN sum(CASE WHEN offline AND others > 0 THEN us ELSE 0 END) / 1e6 END",
        "lost_if_leader_dies_records_max": "max(lost_records_max)",
        "lost_by_first_active_records_max": "max(lost_by_first_active_max)",
        "lost_by_longest_log_records_max": "max(lost_by_longest_log_max)",
        "high_watermark_frozen_seconds": _seconds_score("frozen_us"),
        "visibility_age_ms_max": "max(visibility_age_max_us) / 1e3",
        "visibility_age_ms_mean": "sum(visibility_age_area) / nullif(sum(frozen_us), 0) * 1e9",
        "hidden_record_seconds": _seconds_score("hidden_record_us"),
    },
    "terms": {"no_leader_seconds": "CASE WHEN count_if(no_leader_us IS NULL) = 0 THEN sum(no_leader_us) / 1e6 END"},
    "followers": {
        "exposure_follower_hours": "sum(judged_us) / 3.6e9",
        "misses": "sum(misses)",
        "query_accuracy": "sum(agreed_us) / nullif(sum(judged_us), 0)",
        "query_accuracy_by_blame": "sum(agreed_by_blame_us) / nullif(sum(judged_us), 0)",
        "early": "sum(early)",
        "late_in_isr_seconds": _seconds_score("late_in_isr_us"),
    },
    "verdicts": {
        "shrinks": "count(verdict)",
        **{name: f"count_if(verdict = '{name}')" for name in ("spurious", "genuine", "excluded", "unknown")},
        "possible": "count_if(certainty = 'possible')",
        **{
            cause: f"count_if(array_contains(causes, '{cause}'))"
            for cause in (
                "caught_up", "keeping_pace", "slow_leader", "unacked_only", "follower_stopped", "follower_slow",
            )
        },
        # True lags are stored in whole milliseconds, so one a fraction above the lag time is stored as equal to it.
        "precision_by_lag":
            f"(count_if({_JUDGED} AND true_lag_ms >= {LAG_TIME_MS})) / "
            f"nullif(count_if({_JUDGED} AND true_lag_ms IS NOT NULL), 0)",
        "timely": f"count_if(verdict = 'genuine' AND true_lag_ms <= 1.5 * {LAG_TIME_MS})",
        "mistake_interval_ms_p50": "percentile(mistake_interval_ms, 0.5)",
        "mistake_duration_ms_p50": _percentile_score("restored_ms", 0.5, "spurious"),
        "mistake_duration_ms_p99": _percentile_score("restored_ms", 0.99, "spurious"),
        "mistake_duration_ms_max": "max(restored_ms) FILTER (WHERE verdict = 'spurious')",
        "detection_ms_p50": _percentile_score("true_lag_ms", 0.5, "genuine"),
        "detection_ms_p99": _percentile_score("true_lag_ms", 0.99, "genuine"),
        "detection_ms_max": "max(true_lag_ms) FILTER (WHERE verdict = 'genuine')",
        "flaps": f"count_if(restored_ms <= {LAG_TIME_MS})",
    },
    "changes": {
        "expands": "count_if(kind = 'expand')",
        "relinquishes": "count_if(kind = 'relinquish')",
        "isr_changes": "count(kind)",
    },
    "notification": {"notifications": "count(DISTINCT notification)"},
    "request": {
        "isr_write_requests": "count(DISTINCT request)",
        "isr_write_requests_peak_per_second": "max(in_second)",
        "isr_writes_in_request_max": "max(writes)",
    },
    "latencies": {
        "acks_all_latency_ms_p50": _between("0.5"),
        "acks_all_latency_ms_p99": _between("0.99"),
    },
    "waits": {
        "acks_all_wait_ms_p50": _longest_of("0.5"),
        "acks_all_wait_ms_p99": _longest_of("0.99"),
        "acks_all_wait_ms_mean": "sum(wait_ms * time_us) / nullif(sum(time_us), 0)",
    },
}  # fmt: skip
"""The figures that are computed from each source: by source, the SQL aggregate of each figure by name."""
DERIVED: Final = {
    "exposure_follower_hours": "coalesce(exposure_follower_hours, 0)",
    "exposure_partition_hours": "coalesce(exposure_partition_hours, exposure_follower_hours)",
    "misses": "coalesce(misses, 0)",
    "mistakes_per_partition_day": "spurious / nullif(exposure_partition_hours / 24, 0)",
    "early": "coalesce(early, 0)",
    "precision": "genuine / nullif(genuine + spurious, 0)",
    "recall": "timely / nullif(timely + misses, 0)",
    **{
        f"unavailable_{wait}_share": f"(under_min_isr_seconds + acks_all_waits_{wait}_seconds + no_leader_seconds) "
        "/ nullif(exposure_partition_hours * 3600 + no_leader_seconds - acks_all_wait_unknown_seconds, 0)"
        for wait in ("1s", "30s")
    },
    "mistakes_per_partition_day_low": "coalesce(low, 0) / (exposure_partition_hours / 24)",
    "mistakes_per_partition_day_high": f"coalesce(high, {RULE_OF_THREE}) / (exposure_partition_hours / 24)",
}
"""SQL for figures that are computed from other figures, in this order: each may use those before it."""


@dataclass(frozen=True)
class Results:
    """The results of a replay, sweep or experiment from which scores are computed, by name of their table.

    ``eligible_leaders`` and ``leader_epochs`` are None for simulated clusters, whose terms follow each other at once.
    """

    isr_changes: EngineRows
    shrink_verdicts: EngineRows
    partition_scores: EngineRows
    replica_scores: EngineRows
    eligible_leaders: EngineRows | None = None
    leader_epochs: EngineRows | None = None


TABLES: Final = tuple(field.name for field in fields(Results))


def results_in(engine: LakeEngine, replayed: EngineRows) -> Results:
    """Convert rows of ``udfs.batches.results.RESULT_SCHEMA`` to the tables of `Results`. All kinds are in SCORED."""
    return Results(**{table.name: rows for table, rows in scored_result_tables(engine, replayed).items()})


Facts = Mapping[str, EngineRows]
"""Input of `scores`: the rows of each source (see `SOURCES` and `BY_BROKER`)."""


def score_inputs(engine: LakeEngine, results: Results) -> Facts:
    """Return the rows from which `scores` aggregates figures, by source.

    A source is the name of a query in `SOURCES`, or a key of `BY_BROKER`.
    """
    tables = {name: rows for name, rows in vars(results).items() if rows is not None}
    known = (source for source in SOURCES if not source.startswith(("heirs", "terms")))
    heirs = engine(SOURCES["heirs" if results.eligible_leaders is not None else "heirs_without_elr"], **tables)
    terms = engine(SOURCES["terms" if results.leader_epochs is not None else "terms_without_gaps"], **tables)
    return (
        {"heirs": heirs, "terms": terms}
        | {source: engine(SOURCES[source], **tables) for source in known}
        | {source: changes_by_broker(engine, results.isr_changes, source) for source in BY_BROKER}
    )


def scores(engine: LakeEngine, facts: Facts, groups: Sequence[Sequence[str]]) -> EngineRows:
    """Return the scores of every rule run, in each of several groupings.

    Parameters
    ----------
    engine : LakeEngine
        The engine of the rows.
    facts : Facts
        Result of `score_inputs`.
    groups : sequence of sequence of str
        Each grouping is a list of names in `DIMENSIONS` by which scores are grouped in addition to the rule run.
        Dimensions that it does not contain are null in its rows.

    Returns
    -------
    EngineRows
        One row per grouping and group: `RUN`, the dimensions of all groupings, and the figures.
    """
    keys = [*RUN, *(name for name in DIMENSIONS if any(name in group for group in groups))]
    columns = ["low", "high", *(name for aggregates in AGGREGATES.values() for name in aggregates)]

    def keys_of(source: str) -> list[str]:
        """Return those of ``keys`` that the rows of a source contain."""
        dimensions = DIMENSIONS[:-1] if source in {"costs", "heirs", "terms", *HISTOGRAMS} else DIMENSIONS
        return [name for name in keys if name in (dimensions[:-1] if source in BY_BROKER else dimensions)]

    def grouped(source: str, *more: str) -> str:
        """Return the GROUP BY clause of a source, for all groupings at once."""
        known = keys_of(source)
        sets = ", ".join(f"({', '.join((*RUN, *group, *more))})" for group in groups if {*group} <= {*known})
        return f"GROUP BY GROUPING SETS ({sets})"

    def side_by_side(source: str, own: Mapping[str, str]) -> str:
        """Return the SQL of one source's columns for the union of all sources: columns of other sources are null.

        ``own`` is the SQL of the source's own columns, by name.
        """
        known = keys_of(source)
        return ", ".join(
            [*(name if name in known else f"NULL AS {name}" for name in keys),
             *(f"{own[name]} AS {name}" if name in own else f"NULL AS {name}" for name in columns)]
        )  # fmt: skip

    parts = {
        source: f"SELECT {side_by_side(source, AGGREGATES[source])} FROM {{{source}}} {grouped(source)}"
        for source in AGGREGATES
        if source in facts and source not in HISTOGRAMS
    }
    # A group has few buckets, so window functions can compute their percentiles cheaply.
    for source, (bucket, weight) in HISTOGRAMS.items():
        of_partition = ", ".join(keys_of(source))
        parts[source] = f"""
            SELECT {side_by_side(source, AGGREGATES[source])} FROM (
              SELECT *, sum({weight}) OVER (PARTITION BY {of_partition} ORDER BY {bucket}) AS upto,
                sum({weight}) OVER (PARTITION BY {of_partition}) AS total
              FROM (
                SELECT {of_partition}, {bucket}, sum({weight}) AS {weight} FROM {{{source}}} {grouped(source, bucket)}
              ) AS summed
            ) AS placed
            GROUP BY {of_partition}
        """
    ends = {"low": "percentile(mistakes, 0.025)", "high": "percentile(mistakes, 0.975)"}
    parts["intervals"] = f"SELECT {side_by_side('intervals', ends)} FROM {{sums}} GROUP BY {', '.join(keys)}"
    sources = {**facts, "sums": _sums(engine, facts["verdicts"], keys, grouped("verdicts", "block"))}
    counts = {name for of_source in AGGREGATES.values() for name, text in of_source.items() if text.startswith("count")}
    # In each group, only the row of one source has a value for a figure; max returns it.
    values = (f"coalesce(max({name}), 0) AS {name}" if name in counts else f"max({name}) AS {name}" for name in columns)
    whole = f"""
        SELECT {", ".join(keys)}, {", ".join(values)} FROM ({" UNION ALL ".join(parts.values())}) AS parts
        GROUP BY {", ".join(keys)}
    """
    known = [*keys, *columns]
    for name, text in DERIVED.items():
        others = [column for column in known if column != name]
        whole = f"SELECT {', '.join(others)}, {text} AS {name} FROM ({whole}) AS scored"
        known = [*others, name]
    wanted = ", ".join(name for name in known if name not in {"low", "high"})
    return engine(f"SELECT {wanted} FROM ({whole}) AS scored WHERE exposure_partition_hours > 0", **sources)


def _sums(engine: LakeEngine, verdicts: EngineRows, keys: Sequence[str], grouped: str) -> EngineRows:
    """Return the number of mistakes of each group, a combination of values of ``keys``, in each bootstrap replicate.

    Shrinks come in bursts, so blocks of shrinks are drawn. A block contains the mistakes between a pair of brokers in
    an hour. How often a block is drawn is a Poisson variable with mean 1. It is computed from a hash of the block,
    which is multiplied by one number of the replicate and added to another, modulo a prime. Thus it is the same in
    every run, and independent for any two blocks (Carter and Wegman, 1979).
    """
    numbers = random.Random(1)
    replicates = engine.rows(pa.table({
        "replicate": pa.array(range(REPLICATES), pa.int64()),
        "factor": pa.array([numbers.randrange(1, PRIME) for _ in range(REPLICATES)], pa.int64()),
        "summand": pa.array([numbers.randrange(PRIME) for _ in range(REPLICATES)], pa.int64()),
    }))  # fmt: skip
    text = f"""
        SELECT {", ".join(keys)}, replicate, sum(mistakes * times) AS mistakes FROM (
          SELECT {", ".join(keys)}, replicate, mistakes,
            {_POISSON.format(share=f"((factor * block + summand) % {PRIME}) / {PRIME:.1f}")} AS times
          FROM (
            SELECT {", ".join(keys)}, block, count(*) AS mistakes FROM (
              SELECT *, CAST(conv(substr(md5(concat_ws(
                ' ', cluster_id, CAST(leader_id AS STRING), CAST(replica_id AS STRING),
                CAST(CAST(floor(unix_micros(change_time) / 3.6e9) AS BIGINT) AS STRING)
              )), 1, 7), 16, 10) AS BIGINT) AS block
              FROM {{verdicts}} WHERE verdict = 'spurious'
            ) AS blocks {grouped}
          ) AS counted CROSS JOIN {{replicates}} AS replicates
        ) AS drawn
        GROUP BY {", ".join(keys)}, replicate
    """
    return engine(text, verdicts=verdicts, replicates=replicates)


_POISSON: Final = " + ".join(
    f"CASE WHEN {{share}} > {step} THEN 1 ELSE 0 END"
    for step in (0.36787944, 0.73575888, 0.91969860, 0.98101184, 0.99634015, 0.99940582, 0.99991676)
)
"""SQL that converts ``share``, which is uniform between 0 and 1, to a Poisson variable with mean 1."""


def write_scores(lake: Lake) -> int:
    """Compute ``rule_scores`` and ``rule_scores_by_broker`` for all rule runs and days of the lake, and replace them.

    Returns
    -------
    int
        Number of rows written.
    """
    by_topic = [("event_date", "topic"), ("event_date",), ("topic",), ()]
    by_broker = [(*day, broker) for day in (("event_date",), ()) for broker in ("leader_id", "replica_id")]
    with engine_for(lake, TABLES) as engine:
        scored = engine.keep(scored_by(engine, [("cluster_id", *more) for more in (*by_topic, *by_broker)]))
        of_brokers = "leader_id IS NOT NULL OR replica_id IS NOT NULL"
        return sum(
            engine.replace(table, engine(f"SELECT * FROM {{scored}} WHERE {condition}", scored=scored))
            for table, condition in ((RULE_SCORES, f"NOT ({of_brokers})"), (RULE_SCORES_BY_BROKER, of_brokers))
        )


def scored_by(engine: LakeEngine, groups: Sequence[Sequence[str]]) -> EngineRows:
    """Return the scores of all rule runs in a lake, in several groupings (see `scores`)."""
    return scores(engine, score_inputs(engine, Results(*map(engine.table, TABLES))), groups)


def rules_side_by_side(lake: Lake) -> Rows:
    """Return one row of scores per rule run, over the whole lake, with the lag time in milliseconds as ``T``.

    Rows are sorted by the release of the rule. A rule run without shrinks has a row, too.
    """
    with engine_for(lake, TABLES) as engine:
        rows = engine.listed(scored_by(engine, [()]))
    for row in rows:
        row["T"] = json.loads(row["params_json"])["replica_lag_time_max_ms"]
    order = {rule: position for position, rule in enumerate(REGISTRY)}
    return sorted(rows, key=lambda row: (order.get(row["rule"], len(order)), row["rule"], row["T"], row["params_json"]))
