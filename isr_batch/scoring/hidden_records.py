"""Compute how long a high watermark that is frozen under min.insync.replicas hides records from consumers.

Since 3.7, the high watermark is frozen while the ISR is smaller than min.insync.replicas. Consumers cannot read records
above it, whatever the acks. Consumers with read_committed also wait for the ends of transactions, which the logs do not
show.
"""

from typing import Final

from isr_batch.lake.lake_engine import LakeEngine
from isr_batch.lake.lake_engine import Rows as EngineRows
from isr_batch.scoring.heir_lacks import SPAN
from udfs.rules import REGISTRY
from udfs.rules.base import never_frozen

HIDDEN: Final = {
    "frozen_us": "BIGINT", "visibility_age_max_us": "BIGINT", "visibility_age_area": "DOUBLE",
    "hidden_record_us": "BIGINT",
}  # fmt: skip
"""Columns that `hidden_records` returns, with their SQL types. Table eligible_leaders describes them."""
_KEY: Final = ", ".join(SPAN)
_RUN: Final = ", ".join(SPAN[:-1])


def hidden_records(engine: LakeEngine, spans: EngineRows, partition_timeline: EngineRows) -> EngineRows:
    """Return how many records a frozen high watermark keeps from consumers in each period, and for how long.

    Rules since 3.7 freeze the high watermark (do not let it advance) while the ISR is under min.insync.replicas.

    Parameters
    ----------
    engine : LakeEngine
    spans : EngineRows
        Periods on days with timelines: `SPAN`, ``until_us``, ``below_min_isr`` (whether the ISR is under
        min.insync.replicas).
    partition_timeline : EngineRows

    Returns
    -------
    EngineRows
        `SPAN` and `HIDDEN`. Periods have no row if they are not in a timeline, not under min.insync.replicas, or under
        a rule that does not freeze the high watermark.
    """
    freezing = ", ".join(engine.literal(rule.id) for rule in REGISTRY.values() if rule.may_advance is not never_frozen)
    frozen = engine(f"SELECT {_KEY}, until_us FROM {{spans}} WHERE below_min_isr AND rule IN ({freezing})", spans=spans)
    return engine(_HIDDEN, frozen=engine.keep(frozen), partition_timeline=partition_timeline)


_HIDDEN: Final = f"""
    WITH states AS (
      SELECT {_RUN}, at_us, lead(at_us) OVER (PARTITION BY {_RUN} ORDER BY at_us) AS next_us, log_end, high_watermark
      FROM (
        -- Of several states of an instant the last one holds: neither offset decreases.
        SELECT {_RUN}, unix_micros(time) AS at_us, max(leader_log_end_offset) AS log_end,
          max(high_watermark) AS high_watermark
        FROM {{partition_timeline}} JOIN (SELECT DISTINCT {_RUN} FROM {{frozen}}) AS wanted USING ({_RUN})
        WHERE leader_log_end_offset >= 0 GROUP BY {_RUN}, time
      ) AS instants
    ), stretches AS (
      SELECT {_KEY}, greatest(at_us, from_us) AS begin_us, least(coalesce(next_us, until_us), until_us) AS end_us,
        log_end, high_watermark
      FROM {{frozen}} AS frozen JOIN states USING ({_RUN})
      WHERE at_us < until_us AND coalesce(next_us, until_us) > from_us
    ), appended AS (
      -- When the oldest record above each high watermark was appended.
      SELECT {_RUN}, marks.high_watermark, min(states.at_us) AS appended_us
      FROM (SELECT DISTINCT {_RUN}, high_watermark FROM stretches) AS marks JOIN states USING ({_RUN})
      WHERE states.log_end > marks.high_watermark GROUP BY {_RUN}, marks.high_watermark
    ), hidden AS (
      SELECT {_KEY}, log_end - high_watermark AS records, end_us - begin_us AS us,
        begin_us - appended_us AS from_age_us, end_us - appended_us AS to_age_us
      FROM stretches LEFT JOIN appended USING ({_RUN}, high_watermark)
    )
    SELECT {_KEY},
      CAST(sum(CASE WHEN records > 0 THEN us ELSE 0 END) AS BIGINT) AS frozen_us,
      CAST(max(CASE WHEN records > 0 THEN to_age_us END) AS BIGINT) AS visibility_age_max_us,
      -- Exact in either engine, whatever the order of the sum.
      CAST(coalesce(sum(CASE WHEN records > 0 THEN
        CAST(us AS DECIMAL(19, 0)) * CAST(from_age_us + to_age_us AS DECIMAL(19, 0)) END), 0) AS DOUBLE) / 2e12
        AS visibility_age_area,
      CAST(sum(records * us) AS BIGINT) AS hidden_record_us
    FROM hidden GROUP BY {_KEY}
"""
