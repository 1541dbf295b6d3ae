"""Parse the options ``--stamp-format`` and ``--time-zone``."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from isr_batch.errors import UsageError
from isr_batch.ingest.folder.settings_files import int_setting
from isr_batch.ingest.log_files.stamps import stamp_form, stamp_zone


@dataclass(frozen=True)
class LogOptions:
    """The user's options on how to interpret timestamps in logs.

    Parameters
    ----------
    stamp_format : str, optional
        Format of the timestamps, in Python's strftime syntax, if they are ambiguous or in an unknown format.
    zones : dict of (int or None) to str
        By broker id, the time zone of timestamps that do not show one. Key None applies to all other brokers.
    """

    stamp_format: str | None = None
    zones: dict[int | None, str] = field(default_factory=dict)

    def zone(self, broker_id: int | None) -> str | None:
        """Return the time zone that the user gave for a broker's timestamps; None if none was given."""
        return self.zones.get(broker_id, self.zones.get(None))

    @classmethod
    def parse(cls, stamp_format: str | None, zones: Iterable[str]) -> "LogOptions":
        """Parse the options of a command.

        Parameters
        ----------
        stamp_format : str, optional
        zones : iterable of str
            Values of ``--time-zone``: ``ZONE`` for all brokers, or ``BROKER=ZONE`` for one broker.

        Raises
        ------
        UsageError
            When an option cannot be parsed.
        """
        if stamp_format is not None:
            stamp_form(stamp_format)
        of_broker: dict[int | None, str] = {}
        for text in zones:
            broker, equals, zone = text.partition("=")
            stamp_zone(zone if equals else text)
            if equals and int_setting(broker) is None:
                raise UsageError(f"{broker} is not the id of a broker", "write it like --time-zone 1=Europe/Helsinki")
            of_broker[int_setting(broker) if equals else None] = zone if equals else text
        return cls(stamp_format, of_broker)
