"""Save an analysis to a lake, and open the results of a lake as an analysis."""

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.api.frames import Kind, given_back
from isr_batch.errors import NoInputError, UsageError
from isr_batch.ingest.own_table.ingest import ingest_inputs
from isr_batch.ingest.own_table.items import Source
from isr_batch.ingest.own_table.mapping import TableMapping
from isr_batch.ingest.own_table.read_source import inputs_of_sources
from isr_batch.lake.arrow_read import contract_of, contract_schema, read_columns
from isr_batch.lake.arrow_rows import cast_rows
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.lease import sole_writer
from isr_batch.lake.run_log import new_run_id, write_run_log
from isr_batch.lake.tables.timelines import VIEWS
from isr_batch.nightly import replay_window
from isr_batch.scoring.broker_check import can_be_compared, validate
from isr_batch.scoring.late_checks import find_late_checks
from isr_batch.session import in_utc, start_session
from isr_batch.settings import Settings
from udfs.batches.rule_runs import RuleRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def opened(place: str, *, catalog: bool = False) -> Lake:
    """Open the lake in the folder ``place``, or in the schema ``place`` of a catalog. Spark starts only when needed."""
    return Lake(lambda: start_session(Settings().spark), place, new_run_id(), catalog=catalog)


def save(place: str, sources: Sequence[tuple[str, Source]], mapping: TableMapping, runs: Sequence[RuleRun]) -> Lake:
    """Ingest the caller's rows into a lake, replay them, and compare the replay with the brokers' own ISR changes.

    Without ISR changes of the brokers, the comparison is skipped.

    Parameters
    ----------
    place : str
        Folder or address of the lake.
    sources : sequence of (str, Source)
        Pairs of a mapping section, such as ``fetches``, and the source of its rows.
    mapping : TableMapping
    runs : sequence of RuleRun

    Returns
    -------
    Lake
    """
    settings = Settings()
    lake = Lake(lambda: in_utc(start_session(settings.spark)), place, new_run_id())
    with write_run_log(lake, "analyze", None, settings.hash) as run, sole_writer(lake):
        inputs = inputs_of_sources(sources, mapping)
        found = ingest_inputs(lake, inputs, mapping, max_refused=settings.ingest.max_quarantine_ratio)
        run.add(found.counts)
        replay_window(lake, runs, run=run)
        if can_be_compared(lake):
            with suppress(NoInputError):  # the brokers' own rule may not have been replayed
                if find_late_checks(lake):
                    replay_window(lake, runs, run=run)
                validate(lake)
    return lake


def folder_of(owner: object) -> str:
    """Return a path for a lake in a new temporary folder, which is deleted when ``owner`` is garbage-collected."""
    folder = tempfile.mkdtemp(prefix="isr-batch-")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return f"{folder}/lake"


def rows_where(rows: pa.Table, where: Mapping[str, str] | None) -> pa.Table:
    """Return the rows that match ``where``, which maps column names to required values. None keeps all rows."""
    for name, value in (where or {}).items():
        rows = rows.filter(pc.equal(rows[name], value))
    return rows


class StoredTables:
    """Reads the tables of an `Analysis` from a lake that was replayed before."""

    def __init__(self, lake: Lake, kind: Kind, spark: "SparkSession | None") -> None:
        self._lake = lake
        self._kind: Kind = kind
        self._spark = spark
        self.engine = f"{'spark' if kind == 'spark' else 'local'}: {lake.root} was replayed before"

    def frame(self, name: str, where: Mapping[str, str] | None = None) -> Any:  # noqa: D102 as `Tables`
        if self._kind == "spark" and self._lake.direct(VIEWS[name][1][0] if name in VIEWS else name) is None:
            rows = self._lake.read(name)
            for column, value in (where or {}).items():
                rows = rows.where(rows[column] == value)
            return rows
        schema = contract_schema(name, contract_of(name).column_names)
        if name in VIEWS:
            with InProcess(self._lake) as engine:
                # DuckDB's times have no zone; Spark would read them in the session's zone.
                found = cast_rows(engine.arrow(engine.table(name)), schema)
        else:
            found = read_columns(self._lake, name, schema.names)
        return given_back(rows_where(found, where), self._kind, self._spark)

    @contextmanager
    def lake(self) -> Iterator[Lake]:  # noqa: D102
        yield self._lake

    def save(self, lake: str) -> None:  # noqa: D102
        raise UsageError(
            f"this analysis is read from {self._lake.root}",
            f"copy its folder to {lake}, or save an analysis that `analyze` made",
        )
