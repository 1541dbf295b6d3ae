"""Ingest tables of fetches: in one process and in Spark, compared with plain Spark code.

``python -m benchmarks.tables CONTESTANT FILE FOLDER`` runs one contestant on a file, in a separate process.
"""

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.page import Section, Wait, ratio
from isr_batch.ingest.own_table.derived_tables import derive_tables
from isr_batch.ingest.own_table.ingest import ingest_own_table
from isr_batch.ingest.own_table.mapping import load_mapping
from isr_batch.lake.lake import Lake
from isr_batch.replay.packing import pack_stale_days

SHORTER = 4
FILES = 4
"""Files of the largest size that Spark's workers ingest together."""
PARTITIONS = 300
EVERY_S = 0.5
BEGINS_US = 1_773_144_000_000_000
NOTE = """These tables are not made of the log that is described above, but by `write_table` in `benchmarks/tables.py`:
fetches of two followers of 300 partitions in one file, or in 4 files for the last row. Nothing is replayed, so there
are no ISR changes to compare. CPU seconds are those of the whole process tree, including its start; the peak is that
of memory in the driver's process, Python workers and JVM together."""
MAPPING = """
cluster_id: bench
fetches:
  columns:
    topic: topic
    partition_id: partition
    leader_id: leader
    replica_id: follower
    fetch_offset: offset
    handled_time: {column: ts_us, unit: us}
    leader_log_end_offset: leo
    high_watermark: hw
"""
_SELECT = (
    "CAST(topic AS VARCHAR) AS topic, CAST(partition AS INT) AS partition_id, CAST(leader AS INT) AS leader_id, "
    'CAST(follower AS INT) AS replica_id, CAST("offset" AS BIGINT) AS fetch_offset, '
    "make_timestamp(ts_us) AS handled_time, CAST(leo AS BIGINT) AS leo, CAST(hw AS BIGINT) AS hw, "
    "CAST(make_timestamp(ts_us) AS DATE) AS event_date"
)
_OF_INGEST = "CPU time per further row: `ingest table`"
_PEER_NAMES = {
    "ingest": "`ingest table` finds and writes new rows, summaries of days, terms and segments",
    "again": "`ingest table` runs once more and finds no new row",
    "duckdb": "DuckDB casts columns, removes duplicates, writes Parquet by day",
    "duckdb-in-order": "DuckDB casts columns, removes duplicates, writes Parquet by day in order of set and time",
    "spark": "Spark casts columns, removes duplicates, writes Parquet by day",
    "spark-ingest": "`ingest table` writes rows, summaries of days, terms and segments in Spark's workers",
}


def write_table(rows: int, file: Path, number: int = 0) -> None:
    """Write fetches of two followers of each partition, in order of time, as a Spark job would (snappy).

    Files of one table follow each other.
    """
    rng = np.random.default_rng(1 + number)
    each = -(-rows // (2 * PARTITIONS))
    pair, step = np.repeat(np.arange(2 * PARTITIONS), each), np.tile(np.arange(each), 2 * PARTITIONS)
    seconds = (number * each + step) * EVERY_S + rng.uniform(0, 0.9 * EVERY_S, len(pair))
    order = np.argsort(seconds, kind="stable")[:rows]
    partition, step = pair[order] // 2, pair[order] % 2
    end = (seconds[order] * (1 + partition % 50)).astype(np.int64)
    offset = end - rng.integers(0, 3, len(order))
    pq.write_table(
        pa.table({
            "topic": pa.array([f"topic-{number}" for number in range(30)]).take(pa.array(partition % 30)),
            "partition": (partition // 30).astype(np.int32), "leader": (partition % 6 + 1).astype(np.int32),
            "follower": ((partition + step) % 6 + 1 + (step == 0)).astype(np.int32) % 6 + 1,
            "offset": np.maximum(offset, 0), "ts_us": BEGINS_US + (seconds[order] * 1e6).astype(np.int64), "leo": end,
            "hw": np.maximum(offset - 1, 0), "session": rng.integers(0, 1 << 40, len(order)),
        }).filter(pa.array(((partition + step) % 6 + 1 + (step == 0)) % 6 != partition % 6)),
        file, compression="snappy",
    )  # fmt: skip


def measure(most: int, folder: Path) -> list[Section]:
    """Run each contestant on two tables, the larger of about ``most`` rows, and workers on several of these."""
    rows = (most // SHORTER, most)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "many").mkdir(parents=True)
    cpu: dict[tuple[str, int], float] = {}
    shown = []
    for count in rows:
        write_table(count, folder / f"{count}.parquet")
        for name, what in _PEER_NAMES.items():
            done = _in_a_process(name, folder / f"{count}.parquet", folder / name)
            cpu[name, count] = done["cpu_s"]
            figures = [f"{count:,}", f"{done['cpu_s']:.1f}", f"{done['peak_mb']:,.0f}", f"{done['bytes_ratio']:.2f}"]
            shown.append([what, *figures])
    for number in range(FILES):
        write_table(rows[-1], folder / "many" / f"{number}.parquet", number)
    done = _in_a_process("spark-ingest", folder / "many", folder / "spark-ingest")
    count = FILES * rows[-1]
    shown.append([
        _PEER_NAMES["spark-ingest"], f"{count:,}", f"{done['cpu_s']:.1f}", f"{done['peak_mb']:,.0f}",
        f"{done['bytes_ratio']:.2f}",
    ])  # fmt: skip
    few, many = rows
    further = {name: (cpu[name, many] - cpu[name, few]) / (many - few) * 1e6 for name in _PEER_NAMES}
    of_many = (done["cpu_s"] - cpu["spark-ingest", many]) / (count - many) * 1e6
    return [Section(
        "Tables of fetches into a lake", NOTE,
        ("how the table is ingested or copied", "rows", "CPU time (s)", "peak memory (MB)",
         "size of the lake relative to the source"), shown,
        [
            (f"{_OF_INGEST} relative to DuckDB that removes duplicates", ratio(further["ingest"], further["duckdb"])),
            (f"{_OF_INGEST} by workers relative to Spark that removes duplicates",
             ratio(further["spark-ingest"], further["spark"])),
            (f"{_OF_INGEST} by workers, relative to the first {many:,} rows, of the next {count - many:,}",
             ratio(of_many, further["spark-ingest"])),
        ],
        [
            Wait(
                "ingest of a further row of your own table, in the driver", f"{further['ingest']:.2f} CPU µs",
                "DuckDB that removes duplicates and sorts", f"{further['duckdb-in-order']:.2f} CPU µs",
                ratio(further["ingest"], further["duckdb-in-order"]),
            )
        ],
    )]  # fmt: skip


def _in_a_process(name: str, file: Path, folder: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.tables", name, str(file), str(folder)], check=True, capture_output=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _ingest(file: Path, folder: Path, *, most_rows: int = 1 << 40, again: bool = False) -> Path:
    (folder / "mapping.yaml").write_text(MAPPING)
    session = []

    def start() -> object:
        from isr_batch.session import start_session
        from isr_batch.settings import SparkSettings

        session.append(start_session(SparkSettings()))
        return session[0]

    lake = Lake(start, str(folder / "lake"), "bench")  # type: ignore[arg-type]
    ingest_own_table(lake, [str(file)], load_mapping(folder / "mapping.yaml"), full=again, most_rows=most_rows)
    derive_tables(lake)
    pack_stale_days(lake)
    return folder / "lake" / "fetch_log"


def _by_duckdb(file: Path, folder: Path, order: str = "") -> Path:
    import duckdb

    written = folder / "duckdb"
    with duckdb.connect(config={"threads": 2}) as engine:
        engine.execute(
            f"COPY (SELECT DISTINCT {_SELECT} FROM read_parquet('{file}') {order}) TO '{written}' "
            "(FORMAT parquet, PARTITION_BY (event_date), COMPRESSION zstd)"
        )
    return written


def _by_spark(file: Path, folder: Path) -> Path:
    from isr_batch.session import start_session
    from isr_batch.settings import SparkSettings

    spark = start_session(SparkSettings())
    text = _SELECT.replace('"offset"', "offset").replace("make_timestamp(ts_us)", "timestamp_micros(ts_us)")
    rows = spark.read.parquet(str(file)).selectExpr(*_columns(text))
    rows.dropDuplicates().write.partitionBy("event_date").parquet(str(folder / "spark"))
    return folder / "spark"


def _columns(text: str) -> list[str]:
    return [part.replace(" VARCHAR", " STRING") for part in text.split(", ")]


CONTESTANTS: dict[str, Callable[[Path, Path], Path]] = {
    "ingest": _ingest,
    "again": lambda file, folder: _ingest(file, folder, again=True),
    "duckdb": _by_duckdb,
    "duckdb-in-order": lambda file, folder: _by_duckdb(
        file, folder, "ORDER BY topic, partition_id, leader_id, handled_time"
    ),
    "spark": _by_spark,
    "spark-ingest": lambda file, folder: _ingest(file, folder, most_rows=0),
}


def main() -> None:
    """Run one contestant; CPU seconds, peak and bytes go to stdout as JSON."""
    name, file, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if name == "again":
        folder = folder.with_name("ingest")
    else:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    from benchmarks.measure import CpuOfTree, PeakMemory

    cpu = CpuOfTree()
    with PeakMemory() as peak:
        written = CONTESTANTS[name](file, folder)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    size = sum(path.stat().st_size for path in written.rglob("*.parquet"))
    read = sum(path.stat().st_size for path in (file.rglob("*.parquet") if file.is_dir() else [file]))
    most = max(used, peak.worker + peak.jvm)
    print(json.dumps({"cpu_s": cpu(), "peak_mb": most, "bytes_ratio": size / read}))  # noqa: T201


if __name__ == "__main__":
    main()
