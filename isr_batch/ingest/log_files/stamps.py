"""Recognise the timestamps of log lines, and convert them to UTC in the form in which Kafka prints them."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from functools import cached_property
from zoneinfo import ZoneInfo, available_timezones

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.errors import UsageError

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME = r"(?P<H>[01]?\d|2[0-3]):(?P<M>[0-5]\d):(?P<S>[0-5]\d|60)"
_FRACTION = r"(?:[.,:](?P<f>\d{1,9}))?"
_ZONE = r"(?: ?(?P<p>[AP]M|[ap]m))?(?: ?(?P<z>Z|(?:UTC|GMT)?[+-]\d\d(?::?[0-5]\d)?|UTC|GMT))?"
ZONE_NAME = r"(?: ?(?P<zone>[A-Z]{2,4}T|MSK|WIB|[A-Z][a-z]+/[A-Z][A-Za-z_]+)\b)?"
"""Name of a local time zone after a timestamp, such as CET. It may stand for several zones, and is not converted."""
_NAME = "(?P<b>[A-Z][a-z]{2})"
_MONTH, _DAY = r"(?P<m>0[1-9]|1[0-2])", r"(?P<d>0[1-9]|[12]\d|3[01])"

_DIRECTIVES = {
    "Y": r"(?P<Y>\d{4})", "m": r"(?P<m>\d{1,2})", "d": r"(?P<d>\d{1,2})", "b": r"(?P<b>[A-Za-z]{3})",
    "H": r"(?P<H>\d{1,2})", "M": r"(?P<M>\d\d)", "S": r"(?P<S>\d\d)", "f": r"(?P<f>\d{1,9})",
    "z": r"(?P<z>Z|[+-]\d\d(?::?\d\d)?)", "y": r"(?P<y>\d\d)", "I": r"(?P<H>\d{1,2})", "p": r"(?P<p>[AaPp][Mm])",
    "%": "%",
}  # fmt: skip
"""Directives of Python's strftime that a user's timestamp format may contain, with a pattern for each."""


@dataclass(frozen=True)
class StampForm:
    """A form of timestamps: its name, and a regular expression with a named group for each part of a timestamp.

    Possible groups are Y, y, m, b (name of the month), d, H, M, S, f (fraction of a second), p (AM or PM), z (offset
    from UTC), and s, ms, us or ns since 1970.
    """

    name: str
    pattern: str

    @cached_property
    def text(self) -> str:
        """The pattern without group names, for use within another pattern."""
        return re.sub(r"\(\?P<\w+>", "(?:", self.pattern)

    @cached_property
    def groups(self) -> frozenset[str]:
        """Names of the pattern's groups: the parts of a timestamp of this form."""
        return frozenset(re.findall(r"\(\?P<(\w+)>", self.pattern))


FORMS = (
    StampForm("ISO 8601", rf"(?P<Y>\d{{4}})-{_MONTH}-{_DAY}[ T]{_TIME}{_FRACTION}{_ZONE}"),
    StampForm("year/month/day", rf"(?P<Y>\d{{4}})/{_MONTH}/{_DAY}[ T]{_TIME}{_FRACTION}{_ZONE}"),
    StampForm("basic ISO 8601", r"(?P<Y>20\d\d)(?P<m>0[1-9]|1[0-2])(?P<d>[0-3]\d)[T ]?"
                                r"(?P<H>[0-2]\d)(?P<M>[0-5]\d)(?P<S>[0-5]\d)[.,]?(?P<f>\d{3})"),
    StampForm("day month-name year",
              rf"(?P<d>\d{{1,2}})\.?[ /-]{_NAME}\.?[ /-](?P<Y>\d{{4}})(?: @)?[ :]{_TIME}{_FRACTION}{_ZONE}"),
    StampForm("month-name day, year", rf"{_NAME} (?P<d>\d{{1,2}}), (?P<Y>\d{{4}})(?:,| @)? {_TIME}{_FRACTION}{_ZONE}"),
    StampForm("month/day/year, AM or PM", r"(?P<m>\d{1,2})/(?P<d>\d{1,2})/(?P<Y>\d{4}), "
                                          rf"(?P<H>\d{{1,2}}):(?P<M>[0-5]\d):(?P<S>[0-5]\d){_FRACTION} (?P<p>[AP]M)"),
    StampForm("epoch milliseconds", r"(?P<ms>1\d{12})"),
)  # fmt: skip
"""The forms that are recognised. They are unambiguous: a form in which day and month could be confused is not
listed."""

EVENT_FORMS = (
    *FORMS,
    StampForm("epoch microseconds", r"(?P<us>1\d{15})"),
    StampForm("epoch nanoseconds", r"(?P<ns>1\d{18})"),
    StampForm("epoch seconds", r"(?P<s>1\d{9}(?:\.\d{1,9})?)"),
)
"""Forms of times in the fields of events. In such a field, a plain number can be a time too."""
_SINCE_1970 = {"s", "ms", "us", "ns"}

AMBIGUOUS = re.compile(r"[\[(]?\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d\d)[ T]\d{1,2}:\d\d")
TIME_ALONE = re.compile(r"[\[(]?([01]\d|2[0-3]):[0-5]\d:[0-5]\d[.,]\d{3}\b")


def stamp_form(name: str) -> StampForm:
    """Return the form called ``name`` or, if ``name`` is a format in Python's strftime syntax, a form made from it.

    Raises
    ------
    UsageError
        When a format contains unknown directives, or lacks the day or the time.
    """
    for form in EVENT_FORMS:
        if form.name == name:
            return form
    if "%" not in name:
        raise UsageError(f"{name} is not a timestamp format", "write it like '%d/%m/%Y %H:%M:%S,%f'")
    seen: list[str] = []

    def part(found: "re.Match[str]") -> str:
        """Return the pattern for a directive, or for a character between directives."""
        if found[1] is None:
            return re.escape(found[0])
        if found[1] not in _DIRECTIVES or found[1] in seen:
            raise UsageError(f"%{found[1]} cannot be read in the format {name}", f"known: %{' %'.join(_DIRECTIVES)}")
        seen.append(found[1])
        return _DIRECTIVES[found[1]]

    pattern = re.sub(r"%(.)|[^%]", part, name)
    given = set(seen)
    has_hour = "I" in given if "p" in given else "H" in given
    if not {"d", "M", "S"} <= given or not has_hour or not {"Y", "y"} & given or not {"m", "b"} & given:
        raise UsageError(f"the format {name} lacks the day or the time", "write it like '%d/%m/%Y %H:%M:%S,%f'")
    return StampForm(name, pattern)


def stamp_zone(text: str) -> tzinfo:
    """Parse the name of a time zone or an offset, such as ``Europe/Helsinki``, ``UTC`` or ``+02:00``.

    Raises
    ------
    UsageError
        When the text is neither a time zone nor an offset.
    """
    offset = _stamp_offset_us(text)
    try:
        return ZoneInfo(text) if offset is None else timezone(timedelta(microseconds=offset))
    except (KeyError, ValueError, OSError) as error:
        close = get_close_matches(text, available_timezones(), n=1)
        hint = f"did you mean {close[0]}?" if close else "write it like Europe/Helsinki, UTC or +02:00"
        raise UsageError(f"{text} is not a time zone", hint) from error


def _stamp_offset_us(text: str) -> int | None:
    """Parse an offset from UTC, and return it in microseconds; None for any other text."""
    if text in {"Z", "UTC", "GMT"}:
        return 0
    found = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d\d):?(\d\d)?", text)
    if not found:
        return None
    minutes = int(found[2]) * 60 + int(found[3] or 0)
    return (-minutes if found[1] == "-" else minutes) * 60_000_000


def stamps_in_kafkas_form(stamps: pa.StringArray, form: StampForm, zone: str | None = None) -> pa.StringArray:
    """Convert timestamps to text like ``2026-11-21 16:30:12,613`` in UTC. Timestamps of another form become null.

    Parameters
    ----------
    stamps : string array
        Timestamps without brackets.
    form : StampForm
        Form of the timestamps.
    zone : str, optional
        Time zone of timestamps that do not show one; by default, UTC.
    """
    for unit in form.groups & _SINCE_1970:
        found = pc.struct_field(pc.extract_regex(stamps, f"^{form.pattern}$"), unit)
        if unit == "s":
            return _printed_stamp(
                pc.round(pc.multiply(found.cast(pa.float64()), 1000)).cast(pa.int64()).cast(pa.timestamp("ms"))
            )
        return _printed_stamp(found.cast(pa.int64()).cast(pa.timestamp(unit)).cast(pa.timestamp("ms"), safe=False))
    parts = pc.extract_regex(stamps, f"^{form.pattern}$")
    valid = pc.is_valid(parts)

    def part(name: str, width: int = 2) -> pa.StringArray:
        """Return a part of each timestamp, such as the month, padded with zeros."""
        return pc.utf8_lpad(pc.struct_field(parts, name), width, "0")

    year = part("Y", 4) if "Y" in form.groups else pc.binary_join_element_wise("20", part("y"), "")
    if "b" in form.groups:
        number = pc.index_in(pc.utf8_lower(pc.struct_field(parts, "b")), pa.array(MONTHS))
        month = pc.utf8_lpad(pc.add(number, 1).cast(pa.string()), 2, "0")
    else:
        month = part("m")
    fraction = pa.array(["000"] * len(stamps)) if "f" not in form.groups else pc.utf8_slice_codeunits(
        pc.utf8_rpad(pc.struct_field(parts, "f"), 3, "0"), 0, 3
    )  # fmt: skip
    day = pc.binary_join_element_wise(year, month, part("d"), "-")
    hour = _hour_of_day(part("H"), pc.struct_field(parts, "p")) if "p" in form.groups else part("H")
    time = pc.binary_join_element_wise(hour, part("M"), part("S"), ":")
    text = pc.binary_join_element_wise(day, time, " ")
    offsets = pc.struct_field(parts, "z") if "z" in form.groups else None
    has_offset = offsets is not None and pc.any(pc.greater(pc.binary_length(offsets), 0)).as_py()
    if not has_offset and zone is None:
        return pc.if_else(valid, pc.binary_join_element_wise(text, fraction, ","), None)
    naive = parsed_stamps(pc.binary_join_element_wise(text, fraction, "."))
    us = naive.cast(pa.timestamp("us")).cast(pa.int64())
    if has_offset:
        assert offsets is not None
        encoded = pc.dictionary_encode(pc.fill_null(offsets, ""))
        known = pa.array(
            [_stamp_offset_us(text) if text else None for text in encoded.dictionary.to_pylist()], pa.int64()
        )
        shift = known.take(encoded.indices)
    else:
        shift = pa.nulls(len(stamps), pa.int64())
    if zone is not None and shift.null_count:
        local = _zone_shift_us(us, stamp_zone(zone))
        shift = pc.coalesce(shift, local)
    return _printed_stamp(pc.subtract(us, pc.fill_null(shift, 0)).cast(pa.timestamp("us")).cast(pa.timestamp("ms")))


def _hour_of_day(hour: pa.StringArray, half: pa.StringArray) -> pa.StringArray:
    """Convert hours of a 12-hour clock to hours from 00 to 23. If ``half`` is neither AM nor PM, the hour is kept."""
    half = pc.utf8_upper(pc.fill_null(half, ""))
    number = pc.fill_null(hour, "00").cast(pa.int64())
    number = pc.if_else(pc.and_(pc.equal(half, "AM"), pc.equal(number, 12)), 0, number)
    number = pc.if_else(pc.and_(pc.equal(half, "PM"), pc.less(number, 12)), pc.add(number, 12), number)
    return pc.utf8_lpad(number.cast(pa.string()), 2, "0")


def parsed_stamps(texts: pa.StringArray) -> pa.TimestampArray:
    """Parse timestamps in ISO 8601. A date that does not exist becomes null."""
    try:
        return texts.cast(pa.timestamp("ms"))
    except pa.ArrowInvalid:
        return pa.array([_one_stamp(text) for text in texts.to_pylist()], pa.timestamp("ms"))


def _one_stamp(text: str | None) -> datetime | None:
    """Parse one timestamp. Return None for a date that does not exist."""
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def _zone_shift_us(us: pa.Int64Array, zone: tzinfo) -> pa.Int64Array:
    """Return the offset of a time zone from UTC, in microseconds, at each of the local times ``us``."""
    hours = pc.divide(pc.fill_null(us, 0), 3_600_000_000)
    encoded = pc.dictionary_encode(hours)
    offsets = []
    for hour in encoded.dictionary.to_pylist():
        local = datetime.fromtimestamp(hour * 3600, UTC).replace(tzinfo=zone)
        offset = local.utcoffset()
        assert offset is not None
        offsets.append(offset // timedelta(microseconds=1))
    return pa.array(offsets, pa.int64()).take(encoded.indices)


def _printed_stamp(times: pa.TimestampArray) -> pa.StringArray:
    """Format times as Kafka prints them."""
    return pc.replace_substring(pc.strftime(times, "%Y-%m-%d %H:%M:%S"), ".", ",")
