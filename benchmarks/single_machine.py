"""A strong baseline on one machine: DuckDB sorts, our kernel replays, one process per core."""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.arrow_log import BATCH_ROWS, TERM, without_segments
from benchmarks.measure import checksum_of_table
from isr_batch.replay.kernel_cache import keep_compiled
from udfs.batches.replay import replay_batches
from udfs.batches.results import RESULT_SCHEMA, SET_COLUMNS
from udfs.batches.rule_runs import RuleRun
from udfs.records import APPEND, FETCH, ROW_ORDER, TERM_STARTS, Rows
from udfs.rules import BASELINE

SCHEMA = pa.schema(
    [
        ("cluster_id", pa.string()),
        ("topic", pa.string()),
        ("partition_id", pa.int32()),
        ("leader_id", pa.int32()),
        *((name, pa.int64()) for name in Rows._fields),
        ("term", TERM),
    ]
)
_FETCHES = {
    "time_us": "epoch_us(arrival_time)", "replica_id": "replica_id", "offset": "fetch_offset", "code": "error_code",
    "leader_log_end_offset": "coalesce(leader_log_end_offset, -1)", "handled_us": "epoch_us(handled_time)",
    "processed_us": "epoch_us(processed_time)", "released_us": "epoch_us(released_time)",
    "until_us": "epoch_us(completed_time)",
}  # fmt: skip
_APPENDS = {"time_us": "epoch_us(append_time)", "offset": "log_end_offset", "code": "coalesce(acks, -2)"}
_TERMS = {"time_us": "epoch_us(start_time)", "offset": "start_offset"}
_TERM = """{'leader_epoch': leader_epoch, 'end_us': epoch_us(end_time), 'high_watermark': start_high_watermark,
    'assigned': assigned, 'isr_at_start': isr_at_start, 'observers': observers,
    'leader_is_new': coalesce(previous_leader_id, -1) <> leader_id, 'process_is_new': previous_leader_id IS NULL,
    'replica_lag_time_max_ms': replica_lag_time_max_ms, 'min_insync_replicas': min_insync_replicas::BIGINT,
    'check_origin_ms': check_origin_ms, 'isr_write_ms': coalesce(isr_write_ms, 0),
    'begins_mid_term': coalesce(begins_mid_term, false),
    'ends_mid_term': coalesce(ends_mid_term, false), 'offsets_known': start_offset IS NOT NULL,
    'phase_known': check_origin_source <> 'unknown',
    'isr_known': coalesce(isr_source, 'logged') <> 'inferred', 'held_at_start': held_at_start}"""


ROWS_A_SHARE = 15_000_000
"""Rows that a process sorts at a time: of 14 million it takes 3.5 GB, and of 100 million DuckDB found 7 GB too few."""


class Script:
    """A pool of processes that are up, with kernels loaded, as Spark's session is when its ways are timed."""

    def __init__(self, processes: int, rows: int, runs: Sequence[RuleRun]) -> None:
        self.shares, self.runs = max(processes, -(-rows // ROWS_A_SHARE)), runs
        self.pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=keep_compiled)

    def replay(self, lake: Path) -> Path:
        """Replay the lake's log into one Parquet file a kind of result and share, in the folder ``script``."""
        (lake / "script").mkdir()
        shares = [self.pool.submit(replay_share, lake, share, self.shares, self.runs) for share in range(self.shares)]
        for share in shares:
            share.result()
        return lake


def replay_share(lake: Path, share: int, shares: int, runs: Sequence[RuleRun]) -> None:
    """Replay every partition whose number leaves this remainder."""
    writers: dict[str, Any] = {}
    spilled = str(lake / "script" / "spilled")
    settings: dict[str, Any] = {"threads": 1, "memory_limit": memory_limit(), "temp_directory": spilled}
    with duckdb.connect(config=settings) as connection:
        connection.execute("SET enable_progress_bar = false")
        rows = connection.sql(_query(lake, share, shares)).to_arrow_reader(BATCH_ROWS)
        for batch in replay_batches(_as_expected(rows), runs):
            kind = batch.column("result")[0].as_py()
            if kind not in writers:
                writers[kind] = pq.ParquetWriter(lake / "script" / f"{kind}-{share}.parquet", RESULT_SCHEMA)
            writers[kind].write_batch(batch)
    for writer in writers.values():
        writer.close()


def _as_expected(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [batch.column(field.name).cast(field.type) for field in SCHEMA]
        yield without_segments(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def changes_of_script(lake: Path) -> tuple[int, int]:
    """Checksum of the baseline's changes in the script's files."""
    files = sorted((lake / "script").glob("change-*.parquet"))
    changes = pa.concat_tables(
        pq.read_table(file, filters=[("rule", "=", BASELINE)]).select(
            [
                "partition_id",
                "time_us",
                "kind",
                "replica_id",
                "high_watermark",
                "leader_log_end_offset",
                "follower_log_end_offset",
            ]
        )
        for file in files
    )
    return checksum_of_table(changes)


def _query(lake: Path, share: int, shares: int) -> str:
    def part(table: str, kind: int, columns: dict[str, str], term: str) -> str:
        files = [str(file).removeprefix("file://") for file in DeltaTable(str(lake / table)).file_uris()]
        values = [f'({columns.get(name, "-1")})::BIGINT AS "{name}"' for name in Rows._fields if name != "kind"]
        return (
            f"SELECT {', '.join(SET_COLUMNS)}, {kind}::BIGINT AS kind, {', '.join(values)}, {term} AS term "
            f"FROM read_parquet({files}) WHERE partition_id % {shares} = {share}"
        )

    parts = [
        part("leader_epochs", int(TERM_STARTS), _TERMS, _TERM),
        part("fetch_log", int(FETCH), _FETCHES, "NULL"),
        part("append_log", int(APPEND), _APPENDS, "NULL"),
    ]
    order = ", ".join(f'"{name}"' for name in (*SET_COLUMNS, *ROW_ORDER))  # offset is a word of SQL's
    return f"{' UNION ALL '.join(parts)} ORDER BY {order}"


def memory_limit() -> str:
    """DuckDB's memory limit per process: in total 60 % of the machine's, because Spark's session stays open."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{int(0.6 * memory / cores() / 2**20)}MiB"


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))
