"""Results of an analysis, as frames of the kind that was given."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from isr_batch.errors import explained_error
from isr_batch.lake.addresses import absolute_address, require_delta_path
from isr_batch.lake.lake import Lake

F = TypeVar("F")
F_co = TypeVar("F_co", covariant=True)
"""The kind of frame that was given."""


class Tables(Protocol[F_co]):
    """Where the members of an `Analysis` come from."""

    @property
    def engine(self) -> str:
        """Which engine does the work, and why."""

    def frame(self, name: str, where: Mapping[str, str] | None = None) -> F_co:
        """Rows of a table or a view whose columns have these values."""

    def lake(self) -> AbstractContextManager[Lake]:
        """A lake with a replay, its scores, and the comparison with the brokers where there is one."""

    def save(self, lake: str) -> None:
        """Add the rows to a lake, and replay it."""


class Analysis(Generic[F]):
    """Results of the rules, as frames; each is computed on first access.

    Columns, types and units are those of the tables of a lake (docs/tables.md): a query on a member runs on the lake as
    it is. Instants are in UTC, ``*_ms`` are milliseconds, offsets are of records. Frames of pandas have Arrow's types.
    A frame of Spark's is a plan: each action on it replays, unless it is cached.
    """

    def __init__(self, tables: Tables[F]) -> None:
        self._tables = tables

    def __repr__(self) -> str:
        return f"<isr_batch.Analysis by {self.engine}>"

    @property
    def engine(self) -> str:
        """Which engine does the work, and why, in a line."""
        return self._tables.engine

    @cached_property
    def shrinks(self) -> F:
        """Judged shrinks: ``shrink_verdicts``, one row per replica that a rule removed."""
        return self._tables.frame("shrink_verdicts")

    @cached_property
    def spurious(self) -> F:
        """Those of `shrinks` whose verdict is ``spurious``."""
        return self._tables.frame("shrink_verdicts", {"verdict": "spurious"})

    @cached_property
    def changes(self) -> F:
        """Shrinks and expands: ``isr_changes``."""
        return self._tables.frame("isr_changes")

    @cached_property
    def replica_timeline(self) -> F:
        """States of each follower under each rule, one row per change. Large; the rows are replayed again for it."""
        return self._tables.frame("replica_timeline")

    @cached_property
    def partition_timeline(self) -> F:
        """States of each partition under each rule, likewise."""
        return self._tables.frame("partition_timeline")

    @cached_property
    def scores(self) -> F:
        """Accuracy and cost of each rule: ``rule_scores``, by cluster, day and topic, and over all.

        As after ``replay --timelines none``, losses if leaders died are null; a lake has them.
        """
        return self._tables.frame("rule_scores")

    @cached_property
    def coverage(self) -> F:
        """Times for which a broker's logs are complete: ``coverage``. Unknown for tables, which give no rows."""
        return self._tables.frame("coverage")

    @cached_property
    def quarantine(self) -> F:
        """Rows that were refused, and why: ``quarantine``."""
        return self._tables.frame("quarantine")

    def answer(self) -> str:
        """Say what happened, in the sentences of ``isr-batch run``."""
        from isr_batch.report.answer import answer_of

        with self._tables.lake() as lake:
            return "\n".join(answer_of(lake).lines)

    def report(self, path: str | PathLike[str]) -> Path:
        """Write the page of ``isr-batch report``.

        Returns
        -------
        Path
            The file: HTML that needs no network.
        """
        from isr_batch.report import write_report

        with _faults_explained(), self._tables.lake() as lake:
            write_report(lake, Path(path))
        return Path(path)

    def save(self, lake: str | PathLike[str]) -> None:
        """Add the rows to a lake, as ``isr-batch ingest table`` does, and replay it: `open` has them then.

        Rows that the lake has already are known, and count once.

        Parameters
        ----------
        lake : path or address
            Folder; made if it is not there.

        Raises
        ------
        UsageError
            If the lake has rows of this cluster by another mapping, or from logs; or if this was opened from a lake.
        QualityGateError
            If more than one row in a hundred would be refused.
        WriteConflictError
            If another run is writing.
        """
        require_delta_path(absolute_address(str(lake)))
        with _faults_explained():
            self._tables.save(str(lake))


@contextmanager
def _faults_explained() -> Iterator[None]:
    """Give the errors of the command line for what a disk or a store refuses."""
    try:
        yield
    except Exception as error:
        if (known := explained_error(error)) and known is not error:
            raise known from error
        raise
