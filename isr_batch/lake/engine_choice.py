"""Decide whether Spark's workers or this process do the work of a command, and report the reason."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from isr_batch.errors import UsageError
from isr_batch.settings import SparkSettings

Engine = Literal["auto", "spark", "local"]
DEFAULT_MASTER: Final = SparkSettings.model_fields["master"].default


def _say_nothing(_: str) -> None:
    """Ignore the message about the chosen engine."""


@dataclass
class EngineChoice:
    """The engine that the user wants. Commands call `by_spark` to choose between Spark and this process accordingly.

    Attributes
    ----------
    wanted : {"auto", "spark", "local"}
        With ``auto``, the amount of work decides: Spark gets what is too much for this process.
    why : str
        The source of the user's choice, such as the option or setting, for messages.
    say : callable
        Called with a message when `by_spark` chooses an engine for the first time, and whenever the choice changes.
    """

    wanted: Engine = "auto"
    why: str = ""
    say: Callable[[str], None] = _say_nothing
    _said: set[str] = field(default_factory=set)

    def by_spark(self, amount: int, most: int, what: str) -> bool:
        """Return whether Spark (True) or this process (False) should do some work, and report the choice.

        Parameters
        ----------
        amount, most : int
            Amount of work, and the largest amount that this process can do.
        what : str
            Noun for the unit of the amounts, such as "fetches", for messages.

        Raises
        ------
        UsageError
            If the local engine is requested for more work than this process can hold.
        """
        if self.wanted == "local" and amount > most:
            raise UsageError(
                f"{amount:,} {what}, and one process holds {most:,}; {self.why}", "--engine auto leaves them to Spark"
            )
        spark = self.wanted == "spark" or (self.wanted == "auto" and amount > most)
        size = f"{amount:,} {what}, and one process holds {most:,}"
        line = f"engine {'spark' if spark else 'local'}: {size if self.wanted == 'auto' else self.why}"
        name = line.partition(":")[0]
        if name not in self._said:
            self._said = {name}
            self.say(line)
        return spark


def choice_of_settings(settings: SparkSettings, say: Callable[[str], None] = _say_nothing) -> EngineChoice:
    """Return the user's choice of engine from the settings. ``say`` gets the messages (see `EngineChoice`).

    The setting ``auto`` becomes ``spark`` under spark-submit, if the user has set a master, or if a session is running.
    """
    if settings.engine != "auto":
        return EngineChoice(settings.engine, f"--engine {settings.engine}, or the setting spark.engine", say)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return EngineChoice("spark", "this runs under spark-submit", say)
    if settings.master != DEFAULT_MASTER:
        return EngineChoice("spark", f"spark.master is {settings.master}", say)
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession():
        return EngineChoice("spark", "a Spark session is there", say)
    return EngineChoice(say=say)
