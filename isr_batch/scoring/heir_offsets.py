"""Count the acknowledged records that the next leader would lack if the leader died.

The next leader is the heir, which is elected cleanly. It is examined while the ISR is under min.insync.replicas. During
this time, the high watermark is frozen (since 3.7), but records with acks=0 or 1 are still acknowledged above it. While
a partition has no heir, the replicas that an unclean election may choose are examined.
"""

from typing import Final

from isr_batch.lake.lake_engine import LakeEngine
from isr_batch.lake.lake_engine import Rows as EngineRows
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.scoring.heir_lacks import FOUND, SPAN, heir_lacks
from isr_batch.scoring.hidden_records import HIDDEN, hidden_records

TABLES: Final = {
    "partition_timeline": (*SPAN[:-1], "time", "leader_log_end_offset", "high_watermark"),
    "replica_changes": (*SPAN[:-1], "replica_id", "time", "follower_log_end_offset"),
    "append_log": (*SET_KEY, "append_time", "log_end_offset", "acks"),
    "rule_runs": ("rule", "params_json", "event_date"),
}
"""Tables that `with_heir_offsets` reads, each with the columns that it needs."""
TIMED: Final = ("partition_timeline", "replica_changes", "append_log")
NOTHING_TELLS: Final = ", ".join(
    f"CAST(NULL AS {kind}) AS {name}"
    for name, kind in (
        ("lost_records_max", "BIGINT"), ("lost_us", "BIGINT"), ("elr_below_high_watermark", "INT"),
        ("lost_by_first_active_max", "BIGINT"), ("lost_by_longest_log_max", "BIGINT"), *HIDDEN.items(),
    )
)  # fmt: skip
"""SQL for the columns that `with_heir_offsets` adds, all of them null, for results without timelines."""
_KEY: Final = ", ".join(SPAN)


def with_heir_offsets(engine: LakeEngine, spans: EngineRows, tables: dict[str, EngineRows]) -> EngineRows:
    """Add to rows of `spans_outside_isr` how many records the next leader would lack if the leader died.

    The columns of `hidden_records` are also added.

    Parameters
    ----------
    engine : LakeEngine
    spans : EngineRows
        Result of `isr_batch.scoring.isr_path.spans_outside_isr`.
    tables : dict of str to EngineRows
        The tables in `TABLES`, by name.
    """
    # If it is unknown whether the cluster uses eligible leader replicas, it is assumed to. Days without timelines are
    # left out, because their offsets are unknown: those at the end of the day before are no longer valid.
    critical = engine.keep(
        engine(
            f"""
            SELECT * FROM (
              SELECT {_KEY}, until_us, size(isr) < min_insync_replicas AS below_min_isr,
                CASE WHEN size(isr) < min_insync_replicas THEN coalesce(heir_id, heir_if_on) END AS heir_id,
                CASE WHEN size(isr) < min_insync_replicas THEN coalesce(elr, elr_if_on) END AS elr,
                CASE WHEN offline_if_leader_dies THEN active END AS active
              FROM {{spans}} AS all_spans
            ) AS under WHERE (below_min_isr OR size(active) > 0) AND EXISTS (
              SELECT 1 FROM {{rule_runs}} AS kept WHERE kept.rule = under.rule
                AND kept.params_json = under.params_json
                AND kept.event_date = CAST(timestamp_micros(under.from_us) AS DATE)
            )
            """,
            spans=spans,
            rule_runs=tables["rule_runs"],
        )
    )
    # Timelines are only computed for the few replica sets with such a period.
    of_sets = {name: engine.only(tables[name], critical, SPAN[:-1]) for name in TIMED}
    found = engine.by_key(engine(_EVENTS, critical=critical, **of_sets), SPAN, heir_lacks, FOUND)
    hidden = hidden_records(engine, critical, of_sets["partition_timeline"])
    return engine(
        f"""
        SELECT spans.*, lost_records_max, lost_us, elr_below_high_watermark, lost_by_first_active_max,
          lost_by_longest_log_max, {", ".join(HIDDEN)}
        FROM {{spans}} AS spans
        LEFT JOIN {{found}} AS found USING ({_KEY}) LEFT JOIN {{hidden}} AS hidden USING ({_KEY})
        """,
        spans=spans, found=found, hidden=hidden,
    )  # fmt: skip


_RUN: Final = ", ".join(SPAN[:-1])
_SET: Final = ", ".join(SET_KEY)
_EVENTS: Final = f"""
    WITH watched AS (
      SELECT * FROM {{critical}} WHERE heir_id IS NOT NULL OR size(elr) > 0 OR size(active) > 0
    ), ends AS (
      SELECT {_KEY}, until_us, replica_id, unix_micros(time) AS at_us, follower_log_end_offset AS value
      FROM watched JOIN {{replica_changes}} AS states USING ({_RUN})
      WHERE unix_micros(time) < until_us
        AND (replica_id = heir_id OR array_contains(elr, replica_id) OR array_contains(active, replica_id))
    ), marks AS (
      SELECT {_KEY}, until_us, unix_micros(time) AS at_us, high_watermark AS value
      FROM watched JOIN {{partition_timeline}} AS states USING ({_RUN})
      WHERE unix_micros(time) < until_us
    ), acked AS (
      SELECT {_KEY}, until_us, unix_micros(append_time) AS at_us, log_end_offset AS value
      FROM watched JOIN {{append_log}} AS appends USING ({_SET})
      WHERE unix_micros(append_time) < until_us AND acks IN (0, 1) AND log_end_offset IS NOT NULL
    )
    SELECT {_KEY}, 'span' AS kind, heir_id AS replica_id, from_us AS at_us, CAST(NULL AS BIGINT) AS value, elr, active
    FROM watched
    UNION ALL
    SELECT {_KEY}, 'log_end', replica_id, greatest(at_us, from_us), max_by(value, struct(at_us, value)), NULL, NULL
    FROM ends GROUP BY {_KEY}, replica_id, greatest(at_us, from_us)
    UNION ALL
    SELECT {_KEY}, 'high_watermark', NULL, greatest(at_us, from_us), max(value), NULL, NULL
    FROM marks GROUP BY {_KEY}, greatest(at_us, from_us)
    UNION ALL
    SELECT {_KEY}, 'acked', NULL, greatest(at_us, from_us), max(value), NULL, NULL
    FROM acked GROUP BY {_KEY}, greatest(at_us, from_us)
"""
"""SQL for the input of `heir_lacks`: the state at the start of each period, and the changes during the period. If an
offset has several values at the same time, the last one is used."""
