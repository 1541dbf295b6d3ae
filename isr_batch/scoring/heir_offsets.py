"""What a heir would lack: its log end beside what is acknowledged, while an ISR is under min.insync.replicas.

The high watermark stands still then (3.7 on), and what comes with acks=0 or 1 is acknowledged above it.
"""

from typing import Any, Final

import pyarrow as pa

from isr_batch.lake.engines import LakeEngine
from isr_batch.lake.engines import Rows as EngineRows
from isr_batch.lake.tables.contract import SET_KEY

TABLES: Final = ("partition_timeline", "replica_timeline", "append_log")
_SPAN: Final = (*SET_KEY, "rule", "params_json", "from_us")
_KEY: Final = ", ".join(_SPAN)
_TEXT: Final = frozenset({"cluster_id", "topic", "rule", "params_json"})
_FOUND: Final = pa.schema(
    [(name, pa.string() if name in _TEXT else pa.int64() if name == "from_us" else pa.int32()) for name in _SPAN]
    + [("lost_records_max", pa.int64()), ("lost_us", pa.int64()), ("elr_below_high_watermark", pa.int32())]
)


def with_offsets(engine: LakeEngine, spans: EngineRows, tables: dict[str, EngineRows]) -> EngineRows:
    """Add ``lost_records_max``, ``lost_us`` and ``elr_below_high_watermark`` to spans.

    Parameters
    ----------
    engine : LakeEngine
    spans : EngineRows
        Of `isr_batch.scoring.rule_path.spans`.
    tables : dict of str to EngineRows
        TABLES.
    """
    # Where no log tells whether there are eligible leader replicas, what they would lack.
    watched = engine.keep(
        engine(
            f"""
            SELECT * FROM (
              SELECT {_KEY}, until_us, coalesce(heir_id, heir_if_on) AS heir_id, coalesce(elr, elr_if_on) AS elr
              FROM {{spans}} WHERE size(isr) < min_insync_replicas
            ) AS under WHERE heir_id IS NOT NULL OR size(elr) > 0
            """,
            spans=spans,
        )
    )
    found = engine.by_key(engine(_EVENTS, watched=watched, **tables), _SPAN, at_risk, _FOUND)
    return engine(
        f"""
        SELECT spans.*, lost_records_max, lost_us, elr_below_high_watermark
        FROM {{spans}} AS spans LEFT JOIN {{found}} AS found USING ({_KEY})
        """,
        spans=spans, found=found,
    )  # fmt: skip


_RUN: Final = ", ".join((*SET_KEY, "rule", "params_json"))
_SET: Final = ", ".join(SET_KEY)
_EVENTS: Final = f"""
    WITH ends AS (
      SELECT {_KEY}, until_us, replica_id, unix_micros(time) AS at_us, follower_log_end_offset AS value
      FROM {{watched}} AS watched JOIN {{replica_timeline}} AS states USING ({_RUN})
      WHERE unix_micros(time) < until_us AND (replica_id = heir_id OR array_contains(elr, replica_id))
    ), marks AS (
      SELECT {_KEY}, until_us, unix_micros(time) AS at_us, high_watermark AS value
      FROM {{watched}} AS watched JOIN {{partition_timeline}} AS states USING ({_RUN})
      WHERE unix_micros(time) < until_us
    ), acked AS (
      SELECT {_KEY}, until_us, unix_micros(append_time) AS at_us, log_end_offset AS value
      FROM {{watched}} AS watched JOIN {{append_log}} AS appends USING ({_SET})
      WHERE unix_micros(append_time) < until_us AND acks IN (0, 1) AND log_end_offset IS NOT NULL
    )
    SELECT {_KEY}, 'span' AS kind, heir_id AS replica_id, from_us AS at_us, CAST(NULL AS BIGINT) AS value, elr
    FROM {{watched}}
    UNION ALL
    SELECT {_KEY}, 'log_end', replica_id, max(at_us), max_by(value, struct(at_us, value)), NULL
    FROM ends WHERE at_us <= from_us GROUP BY {_KEY}, replica_id
    UNION ALL
    SELECT {_KEY}, 'log_end', replica_id, at_us, value, NULL FROM ends WHERE at_us > from_us
    UNION ALL
    SELECT {_KEY}, 'high_watermark', NULL, from_us, max(value), NULL FROM marks WHERE at_us <= from_us GROUP BY {_KEY}
    UNION ALL
    SELECT {_KEY}, 'high_watermark', NULL, at_us, value, NULL FROM marks WHERE at_us > from_us
    UNION ALL
    SELECT {_KEY}, 'acked', NULL, from_us, max(value), NULL FROM acked WHERE at_us <= from_us GROUP BY {_KEY}
    UNION ALL
    SELECT {_KEY}, 'acked', NULL, at_us, value, NULL FROM acked WHERE at_us > from_us
"""
"""Of each span, what held at its start, and what changed in it."""


def at_risk(rows: pa.Table) -> pa.Table:
    """Go through one span; Spark's workers may do it, which lack most packages."""
    listed: list[dict[str, Any]] = rows.sort_by([("at_us", "ascending"), ("value", "ascending")]).to_pylist()
    (span,) = (row for row in listed if row["kind"] == "span")
    heir, elr = span["replica_id"], span["elr"] or []
    log_ends: dict[int, int] = {}
    high_watermark = acked = -1
    most, most_us, below = None, None, set[int]()
    for place, row in enumerate(listed):
        if row["kind"] == "log_end":
            log_ends[row["replica_id"]] = row["value"]
        elif row["kind"] == "high_watermark":
            high_watermark = max(high_watermark, row["value"])
        elif row["kind"] == "acked":
            acked = max(acked, row["value"])
        after = listed[place + 1]["at_us"] if place + 1 < len(listed) else None
        # All that happens at an instant happens before it is looked at.
        if row["at_us"] == after or (after is not None and after <= span["from_us"]):
            continue
        below |= {one for one in elr if 0 <= log_ends.get(one, -1) < high_watermark}
        if log_ends.get(heir, -1) >= 0:
            lacks = max(0, high_watermark - log_ends[heir], acked - log_ends[heir])
            if most is None or lacks > most:
                most, most_us = lacks, max(row["at_us"], span["from_us"])
    known = any(log_ends.get(one, -1) >= 0 for one in elr)
    found = {name: span[name] for name in _SPAN} | {
        "lost_records_max": most, "lost_us": most_us if most else None,
        "elr_below_high_watermark": len(below) if known else None,
    }  # fmt: skip
    return pa.Table.from_pylist([found], _FOUND)
