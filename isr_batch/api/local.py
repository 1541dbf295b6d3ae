"""Analyse the caller's rows in this process, without Spark."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from isr_batch.api.frames import Kind, given_back
from isr_batch.api.replayed import facts_of, frames_read, results_of, timelines_of, without_fetches
from isr_batch.api.stored import folder_of, rows_where, save
from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.ingest.own_table.in_memory import RowsHere
from isr_batch.ingest.own_table.leader_epochs import require_known_observers
from isr_batch.ingest.own_table.mapping import TableMapping
from isr_batch.lake.arrow_read import contract_of, read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.memory_lake import MemoryLake
from isr_batch.lake.tables.timelines import VIEWS
from isr_batch.scoring.eligible_leaders import write_eligible_leaders
from isr_batch.scoring.scores import write_scores
from udfs.batches.rule_runs import RuleRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEW_ROWS: Final = 200_000
"""Up to this number of fetches, query plans are kept for the next analysis, because planning takes longer than running
the query. A kept plan always reads all columns of its tables, so it is slower for more fetches."""


class LocalTables:
    """Replays frames in this process, without Spark, and computes the tables of an `Analysis`.

    Parameters
    ----------
    frames : mapping of str to pa.Table
        The caller's frames, by section of the mapping: ``fetches``, ``appends``, ``epochs``, ``changes``.
    mapping : TableMapping
    runs : sequence of RuleRun
    kind : {"pandas", "arrow", "spark"}
        Kind of the frames to return.
    engine : str
        Why this engine was chosen.
    spark : SparkSession, optional
        Session for creating Spark frames.

    Raises
    ------
    UsageError, SchemaError
        If columns that the mapping names are missing from the frames, or have types that cannot be converted.
    QualityGateError
        If no fetch is left, because every row was refused or filtered out.
    """

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        frames: Mapping[str, pa.Table],
        mapping: TableMapping,
        runs: Sequence[RuleRun],
        kind: Kind,
        engine: str,
        spark: "SparkSession | None" = None,
    ) -> None:
        self._frames, self._mapping, self._runs, self._kind, self._spark = frames, mapping, runs, kind, spark
        self.engine = f"local: {engine}"
        with log_sql(repeated=frames["fetches"].num_rows <= _FEW_ROWS) as sql:
            self._tables = frames_read(sql, frames, mapping)
            _require_fetches(self._tables)
            self._facts = facts_of(sql, self._tables)
            require_known_observers(self._tables)
            for table, rows in results_of(sql, self._tables, self._facts, runs).items():
                self._tables.put(table, rows)

    def frame(self, name: str, where: Mapping[str, str] | None = None) -> Any:  # noqa: D102 as `Tables`
        if name in VIEWS:
            rows = self._timelines[name]
        else:
            tables = self._scored if name == "rule_scores" else self._tables
            rows = read_columns(tables, name, contract_of(name).column_names)
        return given_back(rows_where(rows, where), self._kind, self._spark)

    @cached_property
    def _timelines(self) -> dict[str, pa.Table]:
        return timelines_of(self._tables, self._facts, self._runs)

    @cached_property
    def _scored(self) -> MemoryLake:
        write_eligible_leaders(self._tables, "auto")
        write_scores(self._tables)
        return self._tables

    @contextmanager
    def lake(self) -> Iterator[Lake]:  # noqa: D102
        yield self._stored

    @cached_property
    def _stored(self) -> Lake:
        sources = [(name, RowsHere(name, rows)) for name, rows in self._frames.items()]
        return save(folder_of(self), sources, self._mapping, self._runs)

    def save(self, lake: str) -> None:  # noqa: D102
        save(lake, [(name, RowsHere(name, rows)) for name, rows in self._frames.items()], self._mapping, self._runs)


def _require_fetches(tables: MemoryLake) -> None:
    """Raise a QualityGateError if no fetch is left, because every row was refused or filtered out."""
    if read_columns(tables, "fetch_log", ["leader_id"]).num_rows:
        return
    refused = read_columns(tables, "quarantine", ["reason", "detail", "raw"])
    raise without_fetches(refused.num_rows, refused.slice(0, 1))
