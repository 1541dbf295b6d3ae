"""Recognise pandas, Arrow and Spark frames, convert them to Arrow, and convert results back to the caller's kind."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from isr_batch.errors import NoInputError, SchemaError, UsageError
from isr_batch.phrases import listed

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    Frame: TypeAlias = pa.Table | pd.DataFrame | DataFrame

Kind = Literal["pandas", "arrow", "spark"]
_CLASSES: Final[dict[Kind, tuple[str, str]]] = {
    "arrow": ("pyarrow", "Table"),
    "pandas": ("pandas", "DataFrame"),
    "spark": ("pyspark.sql", "DataFrame"),
}


def kind_of(name: str, frame: object) -> Kind:
    """Return whether ``frame`` is from pandas, Arrow or Spark. Error messages call it ``name``.

    Raises
    ------
    UsageError
        If ``frame`` is from none of them.
    """
    for kind, (module, of_class) in _CLASSES.items():
        # No import here: a caller that has a frame of a library has imported the library.
        known = getattr(sys.modules.get(module), of_class, None)
        if known is not None and isinstance(frame, known):
            return kind
    rows = f"{name}.collect()" if hasattr(frame, "collect") else name  # a lazy frame has to be computed first
    raise UsageError(
        f"{name} is {shown_type(frame)}{_columns(frame)}, and a DataFrame of Spark or pandas or a pyarrow.Table is "
        "expected",
        f"`pyarrow.table({rows})` converts any frame that exports Arrow, such as those of polars and DuckDB",
    )


def shown_type(given: object) -> str:
    """Return the name of an argument's type with an article, such as "a str", "a polars DataFrame" or "None"."""
    made = type(given)
    module = made.__module__.partition(".")[0]
    return (
        "None"
        if given is None
        else f"a {made.__qualname__}"
        if module == "builtins"
        else f"a {module} {made.__qualname__}"
    )


def _columns(frame: object) -> str:
    """Return " with " and the names of a frame's columns, for an error message; "" if the names are not known.

    The columns of a lazy frame are not looked up, because that may read files.
    """
    names = None if hasattr(frame, "collect") else getattr(frame, "column_names", getattr(frame, "columns", None))
    try:
        return f" with {', '.join(map(str, names))}" if names is not None else ""
    except TypeError:
        return ""


def one_kind(frames: Mapping[str, object]) -> Kind:
    """Return the kind (pandas, Arrow or Spark) that all ``frames`` have. Error messages call the frames by their keys.

    Raises
    ------
    UsageError
        If the kinds differ, or one argument is not a frame.
    """
    kinds = {name: kind_of(name, frame) for name, frame in frames.items()}
    first = next(iter(kinds.values()))
    for name, kind in kinds.items():
        if kind != first:
            raise UsageError(
                f"{next(iter(kinds))} is a frame of {first}, but {name} of {kind}", "pass frames of one kind"
            )
    return first


def as_arrow(name: str, frame: Any) -> pa.Table:
    """Return the rows of a frame as an Arrow table.

    Raises
    ------
    UsageError
        If two columns have the same name.
    SchemaError
        If a column has values of several types, or of a type that Arrow does not have.
    """
    kind = kind_of(name, frame)
    if kind == "arrow":
        _require_different_frames(name, frame.column_names)
        return frame
    if kind == "spark":
        return frame.toArrow()
    levels = [level for level in frame.index.names if level is not None]
    _require_different_frames(name, [*levels, *frame.columns])
    if levels:  # an index without a name is the row's number
        frame = frame.reset_index()
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, OverflowError) as error:
        detail = "; ".join(str(part) for part in reversed(error.args))
        raise SchemaError(f"{name}: {detail}", "give the column one type, as `astype` does") from error


def schema_of(name: str, frame: Any) -> pa.Schema:
    """Return the Arrow schema of a frame. The rows of a Spark frame are not computed.

    Raises
    ------
    UsageError, SchemaError
        In the same cases as in `as_arrow`.
    """
    if kind_of(name, frame) != "spark":
        return as_arrow(name, frame).schema.remove_metadata()
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    _require_different_frames(name, frame.columns)
    fields = []
    for field in frame.schema:
        try:
            fields += to_arrow_schema(type(frame.schema)([field]), timezone="UTC")
        except PySparkException:  # such a column is refused only if it is mapped
            fields.append(pa.field(field.name, pa.opaque(pa.null(), field.dataType.simpleString(), "spark")))
    return pa.schema(fields)


def _require_different_frames(name: str, columns: Iterable[object]) -> None:
    """Raise a UsageError if two columns of a frame have the same name."""
    several = [str(column) for column, times in Counter(columns).items() if times > 1]
    if several:
        raise UsageError(f"{name} has several columns named {listed(several)}", "rename or drop all but one")


def require_rows(name: str, rows: int) -> None:
    """Raise an error if ``rows``, the number of rows of the frame that the user calls ``name``, is 0.

    Raises
    ------
    NoInputError
    """
    if not rows:
        raise NoInputError(f"{name} has no rows", "there is nothing to replay")


def given_back(rows: pa.Table, kind: Kind, spark: "SparkSession | None" = None) -> Any:
    """Convert an Arrow table to a frame of ``kind``. pandas columns get Arrow types, so that offsets stay integers.

    ``spark`` is needed for Spark frames only.
    """
    if kind == "arrow":
        return rows
    if kind == "pandas":
        import pandas as pd

        return rows.to_pandas(types_mapper=pd.ArrowDtype)
    assert spark is not None
    from pyspark.sql.pandas.types import from_arrow_schema

    if rows.num_rows:
        return spark.createDataFrame(rows)
    return spark.createDataFrame(
        rows, from_arrow_schema(rows.schema)
    )  # Spark Connect cannot derive types from an empty table
