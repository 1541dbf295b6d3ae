"""Sum the results of a replay by pair of brokers and day, and compute 95 % confidence intervals by bootstrap.

Shrinks come in bursts, and a fault affects all partitions of a pair of brokers. Therefore the bootstrap draws leaders
and not shrinks. All rules use the same draws, so that intervals of differences between rules can be computed too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from isr_batch.lake.engines import engine_for
from isr_batch.lake.lake import Lake
from isr_batch.scoring.score_sources import REFUSED_OR_STALLED_US

DRAWS: Final = 2000
"""Number of bootstrap draws, enough for the ends of a 95 % interval."""
ENDS: Final = (2.5, 97.5)

Floats = npt.NDArray[np.float64]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A figure and the ends of its 95 % interval. Undefined values are NaN."""

    value: float
    low: float
    high: float


def sums_of_broker_pairs(lake: Lake) -> pa.Table:
    """Return the sums `SUMMED` of each rule run's results, with one row per day, leader and follower.

    Sums that concern whole partitions are divided equally among the followers of a leader.
    """
    names = ("shrink_verdicts", "replica_scores", "partition_scores")
    with engine_for(lake, names) as engine:
        return engine.arrow(engine(_PAIRS, **{name: engine.table(name) for name in names}))


_OF_PARTITION: Final = (
    "exposure_us", "under_min_isr_us", "high_watermark_stalled_us", "refused_or_stalled_us", "isr_writes",
    "refused_appends", "never_acknowledged", "unavailable_1s_us", "unavailable_30s_us",
)  # fmt: skip
_OF_FOLLOWER: Final = ("misses", "early", "judged_us", "agreed_us", "agreed_by_blame_us")
_OF_SHRINK: Final = {
    "spurious": "verdict = 'spurious'",
    "genuine": "verdict = 'genuine'",
    "unknown": "verdict = 'unknown'",
    "within_lag": "verdict IN ('spurious', 'genuine') AND true_lag_ms < "
    "CAST(get_json_object(params_json, '$.replica_lag_time_max_ms') AS BIGINT)",
}
"""SQL conditions for the kinds of shrinks that are counted. ``within_lag`` are the mistakes by lag: the follower's true
lag was below the lag time. True lags are stored in whole milliseconds, so a true lag that is a fraction above the lag
time is stored as equal to it, and must not be counted as a mistake."""
SUMMED: Final = (*_OF_PARTITION, *_OF_FOLLOWER, *_OF_SHRINK, "detection_ms")
_LEADER: Final = "cluster_id, event_date, leader_id, rule, params_json"


def _sum(names: Sequence[str]) -> str:
    """Return the SQL of one sum per column, separated by commas. A sum has its column's name."""
    return ", ".join(f"CAST(sum({name}) AS DOUBLE) AS {name}" for name in names)


_PAIRS: Final = f"""
    WITH shrinks AS (
      SELECT {_LEADER}, replica_id,
        {", ".join(f"CAST(count_if({text}) AS DOUBLE) AS {name}" for name, text in _OF_SHRINK.items())},
        CAST(sum(CASE WHEN verdict = 'genuine' THEN true_lag_ms END) AS DOUBLE) AS detection_ms
      FROM {{shrink_verdicts}} GROUP BY {_LEADER}, replica_id
    ), partitions AS (
      SELECT {_LEADER}, {_sum(_OF_PARTITION)}
      FROM (
        SELECT *, {REFUSED_OR_STALLED_US} AS refused_or_stalled_us,
          under_min_isr_us + acks_all_waits_1s_us AS unavailable_1s_us,
          under_min_isr_us + acks_all_waits_30s_us AS unavailable_30s_us
        FROM {{partition_scores}}
      ) AS scores
      GROUP BY {_LEADER}
    ), followers AS (
      SELECT {_LEADER}, replica_id, {_sum(_OF_FOLLOWER)} FROM {{replica_scores}} GROUP BY {_LEADER}, replica_id
    ), pairs AS (
      SELECT *, count(*) OVER (PARTITION BY {_LEADER}) AS followers FROM followers
    )
    SELECT {_LEADER}, replica_id, {", ".join(f"{name} / followers AS {name}" for name in _OF_PARTITION)},
      {", ".join(_OF_FOLLOWER)},
      {", ".join(f"coalesce({name}, 0.0) AS {name}" for name in (*_OF_SHRINK, "detection_ms"))}
    FROM pairs JOIN partitions USING ({_LEADER}) LEFT JOIN shrinks USING ({_LEADER}, replica_id)
    ORDER BY {_LEADER}, replica_id
"""


def drawn_sums(rows: Sequence[Row], columns: Sequence[str], stream: int = 0) -> dict[str, Floats]:
    """Return the sum of each column over all rows, followed by its sums over the rows of each bootstrap draw.

    Parameters
    ----------
    rows : sequence of mapping
        The rows to draw from. Calls with the same number of rows and the same ``stream`` draw the same positions.
    columns : sequence of str
    stream : int
        Number of the random stream. Groups of rows that have to be drawn independently need different streams.

    Returns
    -------
    dict of str to float64 array, shape (DRAWS + 1,)
    """
    blocks = len(rows)
    random = np.random.default_rng([stream, blocks])
    drawn = random.multinomial(blocks, np.full(blocks, 1 / max(blocks, 1)), DRAWS)
    times = np.vstack([np.ones(blocks), drawn]).astype(np.float64)
    return {name: times @ np.array([float(row[name] or 0) for row in rows]) for name in columns}


def share_of_sums(part: Floats, whole: Floats) -> Floats:
    """Divide ``part`` by ``whole`` element by element; NaN where ``whole`` is 0."""
    return np.divide(part, whole, out=np.full_like(part, np.nan), where=whole > 0)


def figure_of_draws(values: Floats) -> Figure:
    """Return the first value as a figure, with the 95 % interval of the other values, which are from draws."""
    drawn = values[1:][np.isfinite(values[1:])]
    low, high = np.percentile(drawn, ENDS) if len(drawn) else (np.nan, np.nan)
    return Figure(float(values[0]), float(low), float(high))


def _sums_of_leaders(rows: Sequence[Row]) -> list[Row]:
    """Sum the rows of each leader. Its pairs are drawn together, because a leader that stops drops all followers."""
    sums: dict[tuple[object, object], dict[str, float]] = {}
    for row in rows:
        of_leader = sums.setdefault((row["cluster_id"], row["leader_id"]), dict.fromkeys(SUMMED, 0.0))
        for name in SUMMED:
            value = row.get(name)  # None if it is unknown, or not in a stored table
            of_leader[name] += np.nan if value is None else float(value)
    return list(sums.values())


def figures_of_pairs(rows: Sequence[Row]) -> dict[str, Floats]:
    """Return a rule's figures by name. A figure is an array: its value over all pairs, and then its value in each draw.

    Parameters
    ----------
    rows : sequence of mapping
        The rows of `sums_of_broker_pairs` for one rule run.
    """
    sums = drawn_sums(_sums_of_leaders(rows), SUMMED)
    hours = sums["exposure_us"] / 3.6e9
    judged = sums["spurious"] + sums["genuine"]
    per_hour = {
        name: share_of_sums(sums[name] / (1e6 if name.endswith("_us") else 1), hours)
        for name in (*(name for name in _OF_PARTITION[1:] if name.endswith("_us")), "isr_writes")
    }
    return sums | per_hour | {
        "precision_by_blame": share_of_sums(sums["genuine"], judged),
        "precision_by_lag": share_of_sums(judged - sums["within_lag"], judged),
        "right_by_blame": share_of_sums(sums["agreed_by_blame_us"], sums["judged_us"]),
        "right_by_lag": share_of_sums(sums["agreed_us"], sums["judged_us"]),
        "detection_s": share_of_sums(sums["detection_ms"], sums["genuine"]) / 1e3,
    }  # fmt: skip
