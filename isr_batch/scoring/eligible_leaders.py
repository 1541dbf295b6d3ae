"""Compute the table ``eligible_leaders``: the broker that could lead under each rule run if the leader died.

Since 4.1, a cluster may use eligible leader replicas (ELR, KIP-966) in addition to the ISR, if the feature is enabled.
The ELR under a rule is computed from the ISR under this rule, and not taken from the brokers' logs.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from isr_batch.lake.engines import engine_for
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine
from isr_batch.lake.lake_engine import Rows as EngineRows
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.lake.tables.heirs import ELIGIBLE_LEADERS
from isr_batch.replay.terms import JOINED
from isr_batch.scoring import heir_offsets
from isr_batch.scoring.controller_words import ControlledCluster, ControllerWord
from isr_batch.scoring.isr_path import SPANS, spans_outside_isr
from udfs.rules import REGISTRY

Elr = Literal["auto", "off", "on"]
"""Whether clusters use eligible leader replicas: as their logs show (auto), or as the operator states (off, on)."""

TABLES: Final = (
    "partition_scores", "isr_changes", "leader_epochs", "broker_events", "controller_records", "observed_isr_changes",
)  # fmt: skip
PARTITION: Final = ("cluster_id", "topic", "partition_id")
FIRST_RELEASE: Final = 4
"""First major release that has the feature ELR, which requires metadata.version 4.0-IV1."""

_SET: Final = ", ".join(SET_KEY)
_PARTITION: Final = ", ".join(PARTITION)


def write_eligible_leaders(lake: Lake, elr: Elr) -> int:
    """Compute ``eligible_leaders`` again for all rule runs and days. An ELR depends on all earlier ISR changes.

    Returns
    -------
    int
        Number of rows written.
    """
    with engine_for(lake, TABLES) as engine:
        return engine.replace(ELIGIBLE_LEADERS, eligible_leaders(engine, elr))


def eligible_leaders(engine: LakeEngine, elr: Elr, results: Mapping[str, EngineRows] | None = None) -> EngineRows:
    """Return the rows of ``eligible_leaders``: which broker could become leader, by rule run and time.

    Parameters
    ----------
    engine : LakeEngine
    elr : {"auto", "off", "on"}
    results : mapping of str to EngineRows, optional
        ``partition_scores`` and ``isr_changes`` of a replay without timelines, to use instead of the lake's. Columns
        that are computed from timelines are then null.
    """
    tables = {name: engine.table(name) for name in TABLES if not results or name not in results} | dict(results or {})
    rows = engine(_path(engine), terms=engine(JOINED, leader_epochs=tables["leader_epochs"]), **tables)
    found = engine.by_key(rows, PARTITION, partial(spans_outside_isr, clusters=_clusters(engine, elr)), SPANS)
    if results is None:
        timelines = {name: engine.table(name, columns) for name, columns in heir_offsets.TABLES.items()}
        found = heir_offsets.with_heir_offsets(engine, engine.keep(found), timelines)
    else:
        found = engine(f"SELECT *, {heir_offsets.NOTHING_TELLS} FROM {{found}}", found=found)
    times = {f"{name}_time": f"timestamp_micros({name}_us)" for name in ("from", "until", "lost")}
    times["event_date"] = "CAST(timestamp_micros(from_us) AS DATE)"
    columns = ", ".join(f"{times.get(name, name)} AS {name}" for name in ELIGIBLE_LEADERS.column_names)
    return engine(f"SELECT {columns} FROM {{found}}", found=found)


def _path(engine: LakeEngine) -> str:
    """Return the query for the input of `spans_outside_isr`, for partitions whose ISR is incomplete at some time."""
    in_background = [engine.literal(rule.id) for rule in REGISTRY.values() if rule.isr_write_in_background]
    return f"""
        WITH runs AS (
          SELECT DISTINCT {_SET}, rule, params_json FROM {{partition_scores}}
        ), wanted AS (
          SELECT {_PARTITION}, rule, params_json FROM {{partition_scores}}
          GROUP BY {_PARTITION}, rule, params_json HAVING sum(under_replicated_us) > 0
        ), begins AS (
          SELECT {_PARTITION}, min(start_time) AS start_time, min_by(isr_at_start, start_time) AS isr_at_start
          FROM {{terms}} GROUP BY {_PARTITION}
        ), recorded AS (
          -- A listing, which has no time, counts where no record does and the ISR is the one that it has.
          SELECT {_PARTITION}, start_time, max_by(elr, coalesce(record_offset, -1)) AS elr
          FROM begins JOIN {{controller_records}} AS records USING ({_PARTITION})
          WHERE (kind IN ('partition', 'cleared') OR kind = 'listed' AND array_sort(isr) = array_sort(isr_at_start))
            AND unix_micros(record_time) <= unix_micros(start_time)
          GROUP BY {_PARTITION}, start_time
        )
        SELECT {_SET}, rule, params_json, 'term' AS kind, unix_micros(start_time) AS at_us,
          unix_micros(end_time) AS end_us, assigned, array_intersect(assigned, isr_at_start) AS isr,
          CAST(get_json_object(params_json, '$.min_insync_replicas') AS INT) AS min_isr,
          min_insync_replicas AS min_isr_of_term,
          coalesce(CAST(get_json_object(params_json, '$.isr_write_latency_ms') AS BIGINT),
            CASE WHEN rule IN ({", ".join(in_background)}) THEN isr_write_ms END, 0) * 1000 AS write_us,
          assigned AS isr_before, 'controller' AS made_by, elr
        FROM runs JOIN wanted USING ({_PARTITION}, rule, params_json) JOIN {{terms}} AS terms USING ({_SET})
          LEFT JOIN recorded USING ({_PARTITION}, start_time)
        UNION ALL
        SELECT {_SET}, rule, params_json, kind, unix_micros(change_time), CAST(NULL AS BIGINT), isr_before, isr_after,
          CAST(NULL AS INT), CAST(NULL AS INT), CAST(NULL AS BIGINT), isr_before, made_by, NULL
        FROM {{isr_changes}} AS changes JOIN wanted USING ({_PARTITION}, rule, params_json)
        UNION ALL
        SELECT {_SET}, rule, params_json, 'write', unix_micros(change_time) - 1, unix_micros(answered_time), isr_before,
          isr_after, CAST(NULL AS INT), CAST(NULL AS INT), CAST(NULL AS BIGINT), isr_before, made_by, NULL
        FROM {{observed_isr_changes}} AS written JOIN wanted USING ({_PARTITION})
        WHERE answered_time IS NOT NULL
    """


def _clusters(engine: LakeEngine, elr: Elr) -> dict[str, ControlledCluster]:
    """Return {cluster name: whether the cluster uses ELR, and the controller's statements}."""
    words: dict[str, list[ControllerWord]] = {}
    facts = {row["cluster_id"]: row for row in engine.listed(engine(_FACTS, **_tables_of_eligible_leaders(engine)))}
    for row in engine.listed(engine(_WORDS, **_tables_of_eligible_leaders(engine))):
        words.setdefault(row.pop("cluster_id"), []).append(ControllerWord(**row))
    return {
        name: eligible_leader_cluster(sorted(words.get(name, []), key=_eligible_in_order), row, elr)
        for name, row in facts.items()
    }


def _tables_of_eligible_leaders(engine: LakeEngine) -> dict[str, EngineRows]:
    """Return the tables, by name, from which `_FACTS` and `_WORDS` read."""
    return {name: engine.table(name) for name in ("controller_records", "broker_events", "leader_epochs")}


_FACTS: Final = """
    SELECT cluster_id, min(printed_in) AS printed_in, min(major) AS major FROM (
      SELECT cluster_id, CASE WHEN size(elr) > 0 THEN CASE kind WHEN 'noted' THEN 'logged' WHEN 'listed' THEN 'snapshot'
        END END AS printed_in, CAST(NULL AS INT) AS major
      FROM {controller_records}
      UNION ALL
      SELECT cluster_id, CAST(NULL AS STRING), TRY_CAST(split_part(broker_version, '.', 1) AS INT) FROM {leader_epochs}
    ) AS shown GROUP BY cluster_id
"""
_WORDS: Final = """
    SELECT cluster_id, unix_micros(record_time) AS at_us, CAST(record_offset AS BIGINT) AS number, kind, topic,
      partition_id, broker_id, value, CAST(NULL AS INT) AS leader_epoch
    FROM {controller_records} WHERE kind IN ('elr_version', 'metadata_version', 'min_isr', 'cleared',
      'unclean_restart')
    UNION ALL
    SELECT cluster_id, unix_micros(record_time), CAST(record_offset AS BIGINT), 'unclean', topic, partition_id,
      CAST(NULL AS INT), CAST(NULL AS INT), leader_epoch
    FROM {controller_records} WHERE election IN ('unclean', 'last_known_leader')
    UNION ALL
    SELECT cluster_id, unix_micros(event_time), CAST(0 AS BIGINT),
      CASE WHEN kind = 'unfenced' THEN 'active' ELSE 'inactive' END, CAST(NULL AS STRING), CAST(NULL AS INT), broker_id,
      CAST(NULL AS INT), CAST(NULL AS INT)
    FROM {broker_events} WHERE kind IN ('fenced', 'unfenced', 'shutting_down')
"""


def eligible_leader_cluster(words: Sequence[ControllerWord], facts: Mapping[str, Any], elr: Elr) -> ControlledCluster:
    """Determine whether a cluster uses eligible leader replicas (ELR) at first, and what may change its ELRs later.

    Parameters
    ----------
    words : sequence of ControllerWord
        The controller's statements (such as a new setting or an unclean election) in chronological order, including
        those of kind metadata_version.
    facts : mapping
        ``major`` is the lowest major release of the brokers, or None if unknown. ``printed_in`` says where a non-empty
        ELR was found: "logged" (in a leader's log) or "snapshot" (in the output of kafka-topics --describe); None if
        in neither.
    elr : {"auto", "off", "on"}
    """
    levels = [word for word in words if word.kind == "elr_version"]
    together = [word.at_us for word in words if word.kind == "metadata_version"]
    others = [word for word in words if word.kind not in {"elr_version", "metadata_version"}]
    if elr != "auto":
        return ControlledCluster(others, "given", elr == "on")
    if levels or together:
        # When a cluster is created, and in each snapshot, the controller writes all enabled features, including
        # metadata.version. If the first record of ELR is one of these, ELR was on before. A record of ELR without the
        # others shows that ELR was off before.
        before = bool(levels and levels[0].at_us in together and levels[0].value)
        return ControlledCluster(sorted([*levels, *others], key=_eligible_in_order), "recorded", before)
    if facts["major"] is not None and facts["major"] < FIRST_RELEASE:
        return ControlledCluster(others, "release", False)
    return ControlledCluster(others, facts["printed_in"] or "unknown", True if facts["printed_in"] else None)


def _eligible_in_order(word: ControllerWord) -> tuple[int, int]:
    """Return the sort key of a statement: its time, then its number."""
    return word.at_us, word.number
