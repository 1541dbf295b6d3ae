"""Which logged change a replayed one is compared with."""

import pyarrow as pa
import pytest

from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.sql_files import text_of

OF_FOLLOWER = {"cluster_id": "c", "topic": "t", "partition_id": 0, "leader_id": 1, "replica_id": 2, "kind": "expand"}
LATE = pa.schema([
    ("cluster_id", pa.string()), ("leader_id", pa.int32()), ("from_us", pa.int64()), ("until_us", pa.int64()),
])  # fmt: skip


def pairs(sql: ArrowSql, logged_ms: list[int], replayed_ms: list[int]) -> list[tuple[int, int]]:
    """Pair the changes at these times; the lag time is 4 s."""
    text = text_of("isr_batch.scoring", "pairs", late_for_us=5_000_000)
    changes = {
        name: pa.Table.from_pylist([OF_FOLLOWER | {"number": n, "at_us": ms * 1000} for n, ms in enumerate(times, 1)])
        for name, times in (("logged", logged_ms), ("replayed", replayed_ms))
    }
    terms = pa.table({"cluster_id": ["c"], "leader_id": [1], "replica_lag_time_max_ms": [4000],
                      "checks_per_lag_time": [2]})  # fmt: skip
    for name in (*changes, "own_terms", "late_spans"):
        text = text.replace(f"{{{name}}}", name)
    rows = sql(text, **changes, own_terms=terms, late_spans=LATE.empty_table()).to_pylist()
    return sorted((row["logged_number"], row["replayed_number"]) for row in rows)


@pytest.mark.parametrize(
    ("logged_ms", "replayed_ms", "expected"),
    [
        ([160, 600], [60, 286], [(1, 1), (2, 2)]),  # the second one is nearer to the first line
        ([160, 600], [60], [(1, 1)]),
        ([160], [60, 286], [(1, 1)]),
        ([0, 9000], [100, 4000], [(1, 1)]),  # out of reach
    ],
)
def test_each_change_has_one_twin_at_most(
    sql: ArrowSql, logged_ms: list[int], replayed_ms: list[int], expected: list[tuple[int, int]]
) -> None:
    assert pairs(sql, logged_ms, replayed_ms) == expected
