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
    """A model of the time: a fixed part, and a part per row that executors divide.

    Replica sets are independent, so that rows can be divided as long as no set exceeds an executor's share.
    """

    fixed: float
    a_row: float

    @classmethod
    def fitted(cls, log: Timed, shorter: Timed) -> Self:
        """Both figures from two logs on one executor."""
        a_row = (log.seconds - shorter.seconds) / (log.rows - shorter.rows)
        return cls(log.seconds - a_row * log.rows, a_row)

    def seconds(self, rows: int, executors: int) -> float:
        """Modelled time of a number of executors and rows."""
        return self.fixed + self.a_row * rows / executors

    def __str__(self) -> str:
        """Describe both figures in a sentence."""
        return f"{self.fixed:.1f} s of fixed time, and {self.a_row * 1e6:.2f} s of executor time per million rows"


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
    checked = ("measured (s)", "measured / modelled") if measured else ()
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
        f"The model assumes {model}. {note}",
        (
            executor,
            f"wall time for {rows:,} rows (s)",
            *checked,
            f"wall time for {LARGEST_ROWS:,} rows (s)",
            "M rows/s for these rows",
        ),
        table,
    )
