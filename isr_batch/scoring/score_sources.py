"""Queries that select the rows from which scores are computed, by name. Both Spark and DuckDB can run them."""

from typing import Final

from isr_batch.lake.tables.contract import SET_KEY
from udfs.rules import REGISTRY
from udfs.rules.base import at_high_watermark, never_frozen

RUN: Final = ("rule", "params_json")
DIMENSIONS: Final = ("cluster_id", *RUN, "event_date", "topic", "leader_id", "replica_id")
FOLLOWER: Final = ("cluster_id", "topic", "partition_id", "replica_id", *RUN)

REFUSED_OR_STALLED_US: Final = "under_min_isr_us + high_watermark_stalled_us - stalled_under_min_isr_us"
"""SQL for the time in which the ISR is under min.insync.replicas, or the high watermark below the log end, or both."""

_OF_PARTITION: Final = ", ".join(DIMENSIONS[:-1])
_OF_FOLLOWER: Final = ", ".join(DIMENSIONS)
_FREEZE: Final = ", ".join(f"'{rule.id}'" for rule in REGISTRY.values() if rule.may_advance is not never_frozen)
_EARLY: Final = ", ".join(f"'{r.id}'" for r in REGISTRY.values() if r.acknowledged_end is not at_high_watermark)
SOURCES: Final = {
    "costs": f"""
        SELECT {_OF_PARTITION}, exposure_us, isr_writes, refused_appends, never_acknowledged, under_min_isr_us,
          at_min_isr_us, leader_alone_us, under_replicated_us, high_watermark_stalled_us,
          {REFUSED_OR_STALLED_US} AS refused_or_stalled_us, acknowledged_appends, acks_all_latency_max_us,
          acks_all_waits_1s_us, acks_all_waits_30s_us, acks_all_wait_max_us, acks_all_waits_1s_silent_us,
          acks_all_wait_unknown_us,
          loss_exposed_us, loss_records_max, high_watermark_decreases, members_below_high_watermark,
          passed_within_lag_time, leader_outside_isr, isr_outside_assignment,
          lpad(CAST(unix_micros(first_violation_time) AS STRING), 20, '0') || first_violation || ' at '
            || CAST(first_violation_time AS STRING) || ' in ' || topic || '-' || CAST(partition_id AS STRING)
            || ', leader epoch ' || CAST(leader_epoch AS STRING) AS first_violation
        FROM {{partition_scores}}
    """,
    # If every ISR was complete under a rule run, eligible_leaders has no row for it. Its times must be 0 and not null.
    # If a rule acknowledges records above the high watermark, the heir may lack some even then.
    "heirs": f"""
        SELECT {_OF_PARTITION}, unix_micros(until_time) - unix_micros(from_time) AS us, size(isr) = 1 AS alone, heir_id,
          offline_if_leader_dies AS offline, lost_records_max, size(active) AS others, lost_by_first_active_max,
          lost_by_longest_log_max, frozen_us, visibility_age_max_us, visibility_age_area, hidden_record_us
        FROM {{eligible_leaders}}
        UNION ALL
        SELECT {_OF_PARTITION}, 0, false, NULL, false,
          CASE WHEN rule IN ({_EARLY}) THEN nullif(lost_by_heir_max, -1) END, 0, NULL, NULL, NULL, NULL, NULL, NULL
        FROM {{partition_scores}}
    """,
    # Simulated clusters do not use eligible leader replicas, and none of their brokers is ever fenced.
    "heirs_without_elr": f"""
        SELECT {_OF_PARTITION}, leader_alone_us AS us, true AS alone, CAST(NULL AS INT) AS heir_id, true AS offline,
          nullif(lost_by_heir_max, -1) AS lost_records_max, 1 AS others,
          nullif(lost_by_first_active_max, -1) AS lost_by_first_active_max,
          nullif(lost_by_longest_log_max, -1) AS lost_by_longest_log_max,
          CASE WHEN rule IN ({_FREEZE}) THEN stalled_under_min_isr_us END AS frozen_us,
          CAST(NULL AS BIGINT) AS visibility_age_max_us, CAST(NULL AS DOUBLE) AS visibility_age_area,
          CAST(NULL AS BIGINT) AS hidden_record_us
        FROM {{partition_scores}}
    """,
    # Partitions are summed first, because several later aggregates read all of these rows.
    "latencies": f"""
        SELECT {_OF_PARTITION}, bucket.latency_ms AS latency_ms, sum(bucket.appends) AS appends
        FROM (SELECT {_OF_PARTITION}, explode(acks_all_latencies) AS bucket FROM {{partition_scores}}) AS buckets
        GROUP BY {_OF_PARTITION}, bucket.latency_ms
    """,
    "waits": f"""
        SELECT {_OF_PARTITION}, bucket.wait_ms AS wait_ms, sum(bucket.time_us) AS time_us
        FROM (SELECT {_OF_PARTITION}, explode(acks_all_waits) AS bucket FROM {{partition_scores}}) AS buckets
        GROUP BY {_OF_PARTITION}, bucket.wait_ms
    """,
    "terms_without_gaps": f"SELECT {_OF_PARTITION}, 0 AS no_leader_us FROM {{partition_scores}}",
    # A term that begins as the log does, or goes on after a gap of the log, has no time without a leader before it.
    "terms": f"""
        SELECT {_OF_PARTITION}, no_leader_us
        FROM (
          SELECT {", ".join(SET_KEY)}, event_date, CASE
              WHEN later_epoch IS NULL AND NOT ends_mid_term THEN NULL
              WHEN former_epoch IS NULL OR former_epoch = leader_epoch THEN 0
              WHEN former_epoch = leader_epoch - 1 AND NOT former_open AND NOT begins_mid_term
                THEN greatest(unix_micros(start_time) - unix_micros(former_end_time), 0)
            END AS no_leader_us
          FROM (
            SELECT {", ".join(SET_KEY)}, event_date, start_time, begins_mid_term, ends_mid_term,
              lag(leader_epoch) OVER terms AS former_epoch, lag(ends_mid_term) OVER terms AS former_open,
              lag(end_time) OVER terms AS former_end_time, lead(leader_epoch) OVER terms AS later_epoch
            FROM {{leader_epochs}}
            WINDOW terms AS (PARTITION BY cluster_id, topic, partition_id ORDER BY leader_epoch, start_time)
          ) AS terms
        ) AS gaps
        JOIN (SELECT DISTINCT {", ".join(SET_KEY)}, rule, params_json FROM {{partition_scores}}) AS runs
        USING ({", ".join(SET_KEY)})
    """,
    "followers": f"""
        SELECT {_OF_FOLLOWER}, judged_us, agreed_us, agreed_by_blame_us, misses, early, late_in_isr_us
        FROM {{replica_scores}}
    """,
    "changes": f"SELECT {_OF_FOLLOWER}, kind FROM {{isr_changes}}",
    # Each shrink gets its duration, and each mistake also the time since the previous one.
    "verdicts": f"""
        SELECT {_OF_FOLLOWER}, verdict, certainty, causes, true_lag_ms, change_time,
          (unix_micros(restored_time) - unix_micros(change_time)) / 1e3 AS restored_ms,
          CASE WHEN verdict = 'spurious' THEN
            (unix_micros(change_time) - max(CASE WHEN verdict = 'spurious' THEN unix_micros(change_time) END) OVER (
              PARTITION BY {", ".join(FOLLOWER)} ORDER BY change_time ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            )) / 1e3
          END AS mistake_interval_ms
        FROM {{shrink_verdicts}}
    """,
}
"""The SQL of each source. Its rows contain the `DIMENSIONS` (without replica_id if they are about whole partitions),
and the columns to aggregate."""
