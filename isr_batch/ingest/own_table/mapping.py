"""Read mapping files, which map the columns of users' tables to those of input tables.

A mapping only contains names of columns, constants, units and plain conditions. No code in it is executed. All mistakes
are reported together, before Spark is started.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args
from zoneinfo import available_timezones

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, ValidationError, model_validator

from isr_batch.errors import UsageError
from isr_batch.ingest.folder.listed_observers import parse_observers
from isr_batch.lake.addresses import is_address, is_table_name
from isr_batch.phrases import did_you_mean
from isr_batch.shipped_files import examples
from isr_batch.yaml_files import load_yaml

Unit = Literal["s", "ms", "us", "ns", "iso"]
Format = Literal["parquet", "delta", "csv"]

INSTANTS: Final = ("arrival_time", "handled_time", "processed_time", "released_time", "completed_time")
"""Names of the columns with the instants of a fetch, in chronological order."""


def _known_time_zone_of_mapping(name: str) -> str:
    if name not in available_timezones():
        raise ValueError(f"no such time zone; {did_you_mean(name, sorted(available_timezones()))[:80]}")
    return name


_TOKEN: Final = re.compile(
    r"""\s+ | '(?:[^']|'')*' | "(?:[^"]|"")+"(?:\.\w+)* | (?P<word>[A-Za-z_][\w.]*)(?P<call>\s*\()? | \d+(?:\.\d+)?
    | <> | != | <= | >= | [=<>(),+*/%-]""",
    re.VERBOSE,
)
_BEFORE_BRACKET: Final = ("and", "or", "not", "in")


def _plain_condition(condition: str) -> str:
    """Return ``condition`` if it only consists of columns, literals and operators, otherwise raise an error."""
    at = 0
    if not condition.strip():
        raise ValueError("a condition is expected")
    while at < len(condition):
        token = _TOKEN.match(condition, at)
        if token is None or condition.startswith(("--", "/*"), at):
            raise ValueError(f"a plain condition is expected, without {condition[at : at + 10]!r}")
        if token["call"] and token["word"].lower() not in _BEFORE_BRACKET:
            raise ValueError(f"a plain condition is expected, without functions: {token['word']}(...)")
        if token["word"] and token["word"].lower() in {"select", "from", "exists"}:
            raise ValueError(f"a plain condition is expected, without {token['word']}")
        at = token.end()
    return condition


def with_quoted_names(condition: str, names: Collection[str]) -> str:
    """Quote the given column names in a plain condition, as names such as ``offset`` are SQL keywords."""

    def quoted(token: re.Match[str]) -> str:
        first, dot, rest = (token["word"] or "").partition(".")
        return f'"{first}"{dot}{rest}{token["call"] or ""}' if first in names else token[0]

    return _TOKEN.sub(quoted, condition)


def words_of_condition(condition: str) -> set[str]:
    """Return the words in a plain condition: names of columns and SQL keywords."""
    return {word.strip('"') for word in re.findall(r"[A-Za-z_][\w.]*|\"[^\"]+\"", re.sub(r"'[^']*'", "", condition))}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ColumnSource(_Section):
    """The source of a column's values: a column of the user's table (``a.b`` for a nested field), or a constant."""

    plain_is: ClassVar[str] = "column"
    """The field that is set if the YAML contains just a text instead of keys."""

    column: str | None = None
    constant: Any = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, given: object) -> object:
        """Expand the short form of a source in YAML, which is just the name of a column, or a constant."""
        if isinstance(given, bool):
            raise ValueError("YAML reads this word as a truth value: quote it, '...'")  # noqa: TRY004
        if isinstance(given, str):
            return {cls.plain_is: given}
        if isinstance(given, int | list):
            return {"constant": given}
        if not isinstance(given, Mapping):
            raise ValueError("the name of a column is expected")  # noqa: TRY004 (pydantic collects only these)
        return given

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        """Raise an error unless exactly one of column and constant is given."""
        if (self.column is None) == (self.constant is None):
            raise ValueError("give either a column or a constant")
        return self


class TextSource(ColumnSource):
    """Source of a STRING column."""

    constant: str | None = None


class NameSource(TextSource):
    """Source of the cluster's name, which is usually a constant."""

    plain_is = "constant"


class NumberSource(ColumnSource):
    """Source of an INT or BIGINT column."""

    constant: StrictInt | None = None


class NumbersSource(ColumnSource):
    """Source of an ARRAY<INT> column, such as an ISR: a column of lists, or of text with numbers and separators."""

    constant: list[StrictInt] | None = None


class InstantSource(ColumnSource):
    """Source of a TIMESTAMP column: a column of timestamps or, if ``unit`` is given, of numbers since 1970 or text."""

    constant: None = None
    unit: Unit | None = None
    time_zone: Annotated[str, AfterValidator(_known_time_zone_of_mapping)] | None = None
    """Time zone of text and timestamps without an offset from UTC; by default, UTC."""


class MappedColumns(_Section):
    """Key ``columns`` of a mapped table: for each column of the lake, the source of its values."""


class FetchColumns(MappedColumns):
    """Mapped columns of fetch_log. One of arrival_time and handled_time is required."""

    topic: TextSource
    partition_id: NumberSource
    leader_id: NumberSource
    replica_id: NumberSource
    fetch_offset: NumberSource
    arrival_time: InstantSource | None = None
    handled_time: InstantSource | None = None
    processed_time: InstantSource | None = None
    released_time: InstantSource | None = None
    completed_time: InstantSource | None = None
    leader_epoch: NumberSource | None = None
    leader_log_end_offset: NumberSource | None = None
    high_watermark: NumberSource | None = None
    error_code: NumberSource | None = None


class AppendColumns(MappedColumns):
    """Mapped columns of append_log."""

    topic: TextSource
    partition_id: NumberSource
    leader_id: NumberSource
    append_time: InstantSource
    log_end_offset: NumberSource
    acks: NumberSource
    leader_epoch: NumberSource | None = None
    base_offset: NumberSource | None = None
    log_end_source: TextSource | None = None
    acknowledged_time: InstantSource | None = None
    error_code: NumberSource | None = None


class EpochColumns(MappedColumns):
    """Mapped columns of given_terms, from which leader_epochs is derived."""

    topic: TextSource
    partition_id: NumberSource
    leader_epoch: NumberSource
    leader_id: NumberSource
    start_time: InstantSource
    end_time: InstantSource | None = None
    start_offset: NumberSource | None = None
    start_high_watermark: NumberSource | None = None
    assigned: NumbersSource | None = None
    isr_at_start: NumbersSource | None = None
    previous_leader_id: NumberSource | None = None
    replica_lag_time_max_ms: NumberSource | None = None
    min_insync_replicas: NumberSource | None = None
    broker_version: TextSource | None = None
    check_origin_ms: NumberSource | None = None
    check_origin_source: TextSource | None = None
    isr_write_ms: NumberSource | None = None
    metadata_delay_ms: NumberSource | None = None


class ChangeColumns(MappedColumns):
    """Mapped columns of observed_isr_changes.

    Each replica that is in only one of the ISRs before and after becomes a row.
    """

    topic: TextSource
    partition_id: NumberSource
    leader_id: NumberSource
    change_time: InstantSource
    isr_before: NumbersSource
    isr_after: NumbersSource
    leader_epoch: NumberSource | None = None
    made_by: TextSource | None = None
    high_watermark: NumberSource | None = None
    leader_log_end_offset: NumberSource | None = None


Condition = Annotated[str, AfterValidator(_plain_condition)]
"""SQL condition that selects the rows to read. It may contain columns, literals, comparisons, AND, OR, NOT, IN,
BETWEEN, LIKE and IS NULL."""


class MappedTable(_Section):
    """A section of a mapping file, which describes how to read one of the user's tables."""

    columns: MappedColumns
    where: Condition | None = None


class FetchTable(MappedTable):
    """Section ``fetches``. The location of its table is given on the command line."""

    columns: FetchColumns


class AppendTable(MappedTable):
    """Section ``appends``: location and columns of a table of appends."""

    path: str
    columns: AppendColumns


class EpochTable(MappedTable):
    """Section ``epochs``: location and columns of a table of leaders' terms."""

    path: str
    columns: EpochColumns


class ChangeTable(MappedTable):
    """Section ``changes``: location and columns of a table of the ISR changes that brokers made."""

    path: str
    columns: ChangeColumns


class Csv(_Section):
    """Format of CSV files. Without a header, the columns are named _c0, _c1 and so on."""

    delimiter: str = Field(default=",", min_length=1)
    header: bool = True


class TableMapping(_Section):
    """The content of a mapping file. Relative paths in it are relative to the file's folder."""

    format: Format | None = None
    """Format of all tables. By default, it is inferred from each path."""
    csv: Csv = Csv()
    cluster_id: NameSource
    fetches: FetchTable
    appends: AppendTable | None = None
    epochs: EpochTable | None = None
    changes: ChangeTable | None = None
    replica_lag_time_max_ms: int = Field(default=30_000, gt=0, le=10**12)
    """Lag time, in ms, of terms that the tables give none for; min_insync_replicas and broker_version are alike."""
    min_insync_replicas: int = Field(default=1, ge=1)
    broker_version: str | None = None
    observers: Annotated[Any, AfterValidator(parse_observers)] = {}


HINT: Final = f"docs/own-tables.md describes the mapping; {examples('conf/mappings')} has examples"


def load_mapping(file: Path, cluster_id: str | None = None) -> TableMapping:
    """Read and check a mapping file.

    Parameters
    ----------
    file : Path
        A YAML file.
    cluster_id : str, optional
        Name of the cluster. It overrides the name in the file.

    Raises
    ------
    UsageError
        If the file cannot be read or contains mistakes. The message lists all.
    """
    tree = read_mapping(file) | ({} if cluster_id is None else {"cluster_id": cluster_id})
    return mapping_of(_mapping_with_paths(tree, file.parent), file)


def read_mapping(file: Path) -> dict[str, Any]:
    """Parse a mapping file, without checking its sections.

    Raises
    ------
    UsageError
        If the file cannot be read, or does not consist of sections.
    """
    try:
        tree = load_yaml(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", HINT) from error
    except yaml.YAMLError as error:
        raise UsageError(f"{file} is not YAML: {' '.join(str(error).split())}", HINT) from error
    if not isinstance(tree, dict):
        raise UsageError(f"{file}: sections with keys are expected, not {tree!r}", HINT)
    return tree


def mapping_of(tree: dict[str, Any], where: object) -> TableMapping:
    """Check a mapping that was parsed from YAML, and convert it to a `TableMapping`.

    ``where`` is the name of its file for messages.

    Raises
    ------
    UsageError
        If there are mistakes. The message lists all of them.
    """
    mistakes = _mistakes_across_sections(tree)
    try:
        mapping = TableMapping.model_validate(tree)
    except ValidationError as error:
        mistakes = [
            _mapping_mistake(details["loc"], details["type"], details["msg"]) for details in error.errors()
        ] + mistakes
    if mistakes:
        count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise UsageError(f"{count} in {where}:" + "".join(f"\n  {mistake}" for mistake in mistakes), HINT)
    return mapping


def mapped_columns(columns: _Section) -> dict[str, ColumnSource]:
    """Return the sources of the mapped columns, by name of the input table's column."""
    return {name: given for name, given in columns if given is not None}


def _mapping_with_paths(tree: dict[str, Any], folder: Path) -> dict[str, Any]:
    moved = dict(tree)
    for name in ("appends", "epochs", "changes"):
        section = tree.get(name)
        path = section.get("path") if isinstance(section, dict) else None
        if not isinstance(section, dict) or not isinstance(path, str) or is_address(path):
            continue
        if (folder / path).exists() or not is_table_name(path):
            moved[name] = {**section, "path": str(folder / path)}
    return moved


def _mistakes_across_sections(tree: dict[str, Any]) -> list[str]:
    """Return the mistakes that involve several keys or sections. The pydantic models find all other mistakes."""

    def mapped(section: str) -> Mapping[str, Any]:
        columns = tree[section].get("columns") if isinstance(tree.get(section), dict) else None
        return columns if isinstance(columns, dict) else {}

    mistakes, fetches, appends = [], mapped("fetches"), mapped("appends")
    if fetches and not {"handled_time", "arrival_time"} & set(fetches):
        mistakes.append("fetches.columns: handled_time or arrival_time is required")
    if appends and not tree.get("epochs") and ("leader_epoch" in fetches) != ("leader_epoch" in appends):
        mistakes.append("leader_epoch: without epochs, map it for both fetches and appends, or for neither")
    return mistakes


def _mapping_mistake(location: tuple[int | str, ...], kind: str, message: str) -> str:
    model: type[BaseModel] = TableMapping
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation
        classes = [t for t in (annotation, *get_args(annotation)) if isinstance(t, type) and issubclass(t, BaseModel)]
        if not classes:
            break
        model = classes[0]
    where, last = ".".join(map(str, location)), str(location[-1])
    if kind == "extra_forbidden":
        return f"{where}: no such key; {did_you_mean(last, model.model_fields)}"
    if kind == "missing":
        return f"{where}: is required" + (", or --cluster" if last == "cluster_id" else "")
    message = message.removeprefix("Value error, ")
    return f"{where}: {message[0].lower()}{message[1:]}"
