"""Time of more executors than there are here, by a model of two figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from benchmarks.page import Section

EXECUTORS = (1, 2, 4, 8)
LARGEST_ROWS = 1_000_000_000


class Timed(NamedTuple):
    """Rows of a log, and the seconds that their replay took."""

    rows: int
    seconds: float


@dataclass(frozen=True)
class ExecutorModel:
    """Seconds that no executor shortens, and seconds of an executor a row.

    Replica sets share nothing, so that rows divide among executors as long as no set has more than its part.
    """

    fixed: float
    a_row: float

    @classmethod
    def fitted(cls, log: Timed, shorter: Timed) -> Self:
        """Both figures from two logs on one executor."""
        a_row = (log.seconds - shorter.seconds) / (log.rows - shorter.rows)
        return cls(log.seconds - a_row * log.rows, a_row)

    def seconds(self, rows: int, executors: int) -> float:
        """Time that a number of executors take for a number of rows."""
        return self.fixed + self.a_row * rows / executors

    def __str__(self) -> str:
        """Both figures, as a sentence has them."""
        return f"{self.fixed:.1f} s that no executor shortens, and {self.a_row * 1e6:.2f} s of one a million rows"


def executors_modelled(
    model: ExecutorModel, rows: int, executor: str, note: str, measured: Mapping[int, float] | None = None
) -> Section:
    """Modelled times of more executors, next to the measured ones.

    Parameters
    ----------
    model : ExecutorModel
    rows : int
        Rows of the measured log.
    executor : str
        Name of an executor in the model, in the plural.
    note : str
        Explanation of the model's figures.
    measured : mapping of int to float, optional
        Seconds of that log, by the number of executors.
    """
    checked = ("measured, s", "measured by modelled") if measured else ()
    table = []
    for number in EXECUTORS:
        seconds, of_largest = model.seconds(rows, number), model.seconds(LARGEST_ROWS, number)
        row = [str(number), f"{seconds:.1f}"]
        if measured:
            found = measured.get(number)
            row += ["", ""] if found is None else [f"{found:.1f}", f"{found / seconds:.2f}"]
        table.append([*row, f"{of_largest:.0f}", f"{LARGEST_ROWS / of_largest / 1e6:.2f}"])
    return Section(
        "More executors, modelled",
        f"{model}. {note}",
        (executor, f"s, {rows:,} rows", *checked, f"s, {LARGEST_ROWS:,} rows", "M rows/s of these"),
        table,
    )
