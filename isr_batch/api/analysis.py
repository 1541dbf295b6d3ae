"""The result of `isr_batch.analyze` and `isr_batch.open`: tables as DataFrames of the same kind as the input."""

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
"""Type of the returned frames (pandas, Arrow or Spark), which is that of the caller's frames."""


class Tables(Protocol[F_co]):
    """The source of an `Analysis`' tables: a replay in this process, a replay in Spark's workers, or a lake."""

    @property
    def engine(self) -> str:
        """The engine that does the work and why it was chosen, in one line."""

    def frame(self, name: str, where: Mapping[str, str] | None = None) -> F_co:
        """Return the table or view ``name``. ``where`` maps column names to the values that returned rows must have."""

    def lake(self) -> AbstractContextManager[Lake]:
        """Yield a lake (a set of Delta tables) with the caller's rows, and each rule's ISR changes, accuracy and cost.

        If the ISR changes that the brokers made are known, the lake also compares the changes of their rule with them.
        """

    def save(self, lake: str) -> None:
        """Ingest the caller's rows into the lake at this path or address, and replay them there."""


class Analysis(Generic[F]):
    """The results of an analysis as frames. A frame is computed when it is first used.

    Columns, types and units are those of the tables of a lake (docs/tables.md), so that a query on a frame also runs on
    the lake. Instants are in UTC, ``*_ms`` are milliseconds, and offsets are record offsets. pandas frames have Arrow
    types. A Spark frame is a plan: each action on it replays, unless the frame is cached.
    """

    def __init__(self, tables: Tables[F]) -> None:
        self._tables = tables

    def __repr__(self) -> str:
        return f"<isr_batch.Analysis by {self.engine}>"

    @property
    def engine(self) -> str:
        """The engine that does the work and why it was chosen, in one line."""
        return self._tables.engine

    @cached_property
    def shrinks(self) -> F:
        """The table ``shrink_verdicts``: one row per replica that a rule dropped from the ISR.

        Column ``verdict`` says whether it was right to drop the replica. A rule is an algorithm that decides which
        replicas are in the ISR.
        """
        return self._tables.frame("shrink_verdicts")

    @cached_property
    def spurious(self) -> F:
        """The rows of `shrinks` with verdict ``spurious``: the mistakes."""
        return self._tables.frame("shrink_verdicts", {"verdict": "spurious"})

    @cached_property
    def changes(self) -> F:
        """The table ``isr_changes``: one row per replica that a rule dropped from the ISR or added to it."""
        return self._tables.frame("isr_changes")

    @cached_property
    def replica_timeline(self) -> F:
        """The state of each follower under each rule, one row per change. The frame is large.

        When it is computed, the input is replayed again, unless the analysis was opened from a lake.
        """
        return self._tables.frame("replica_timeline")

    @cached_property
    def partition_timeline(self) -> F:
        """The state of each partition under each rule, one row per change. The frame is large.

        When it is computed, the input is replayed again, unless the analysis was opened from a lake.
        """
        return self._tables.frame("partition_timeline")

    @cached_property
    def scores(self) -> F:
        """The table ``rule_scores``: accuracy and cost of each rule, by cluster, day and topic, and in total.

        The columns for records that would be lost if leaders died are null here, because they are computed from the
        timelines. In a lake that was replayed with timelines they have values.
        """
        return self._tables.frame("rule_scores")

    @cached_property
    def coverage(self) -> F:
        """The table ``coverage``: the periods for which each broker's log is complete.

        It is empty if the input was the user's own table of fetches instead of broker logs.
        """
        return self._tables.frame("coverage")

    @cached_property
    def quarantine(self) -> F:
        """The table ``quarantine``: input rows that were refused, with the reason."""
        return self._tables.frame("quarantine")

    def answer(self) -> str:
        """Return the summary that ``isr-batch run`` prints: a few sentences on followers dropped by mistake."""
        from isr_batch.report.answer import answer_of

        with self._tables.lake() as lake:
            return "\n".join(answer_of(lake).lines)

    def report(self, path: str | PathLike[str]) -> Path:
        """Write the report of ``isr-batch report`` to the file ``path``.

        Returns
        -------
        Path
            The path of the HTML file. The file loads nothing from the network.
        """
        from isr_batch.report import write_report

        with _faults_explained(), self._tables.lake() as lake:
            write_report(lake, Path(path))
        return Path(path)

    def save(self, lake: str | PathLike[str]) -> None:
        """Add the analysed rows to a lake, as ``isr-batch ingest table`` does, and replay the lake.

        `isr_batch.open` opens it later. Rows that the lake already has are not added again.

        Parameters
        ----------
        lake : path or address
            Folder or address of the lake, which is created if it does not exist.

        Raises
        ------
        UsageError
            If the lake already contains rows of this cluster that came from logs or were read with a different mapping,
            or if this analysis was itself opened from a lake.
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
    """Convert exceptions that `explained_error` knows, such as a full disk, to an `IsrBatchError` with a remedy."""
    try:
        yield
    except Exception as error:
        if (known := explained_error(error)) and known is not error:
            raise known from error
        raise
