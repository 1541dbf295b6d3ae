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
    """The engine that the user wants for a lake. Each command uses it to choose between Spark and this process.

    Attributes
    ----------
    wanted : {"auto", "spark", "local"}
        With ``auto``, the amount of work decides.
    why : str
        Where the user's choice comes from, such as an option.
    say : callable
        Called with a message when an engine is chosen, and again when the choice changes.
    """

    wanted: Engine = "auto"
    why: str = ""
    say: Callable[[str], None] = _say_nothing
    _said: set[str] = field(default_factory=set)

    def by_spark(self, amount: int, most: int, what: str) -> bool:
        """Decide whether Spark (True) or this process does some work, and report the choice.

        Parameters
        ----------
        amount, most : int
            Amount of work, and the largest amount for this process.
        what : str
            Name of the unit of the amount.

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
    """Return the engine in the settings. With ``auto``, it is Spark if a session is running or its master is set."""
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
