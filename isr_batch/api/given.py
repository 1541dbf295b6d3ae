"""Parse the arguments ``mapping`` and ``rules`` of the public functions."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from isr_batch.api.frames import shown_type
from isr_batch.errors import UsageError
from isr_batch.ingest.own_table.mapping import (
    AppendColumns,
    ChangeColumns,
    EpochColumns,
    FetchColumns,
    MappedColumns,
    TableMapping,
    mapping_of,
    read_mapping,
)
from isr_batch.phrases import did_you_mean
from udfs.batches.rule_runs import RuleRun
from udfs.rules import ALL_RULES, REGISTRY

GivenMapping: TypeAlias = Mapping[str, Any] | str | PathLike[str] | None
SECTIONS: Final[dict[str, type[MappedColumns]]] = {
    "fetches": FetchColumns, "appends": AppendColumns, "epochs": EpochColumns, "changes": ChangeColumns,
}  # fmt: skip
CLUSTER: Final = "cluster"
"""Name of the cluster if the caller does not give one."""
_EXAMPLE: Final = (
    'name columns, such as mapping={"replica_id": "follower", "handled_time": {"column": "ts", "unit": "ms"}}'
)
_ARGUMENTS: Final = {"replica_lag_time_max_ms": "lag_time_ms"}
_ALSO: Final = {"partition_id": "partition"}
"""A second name under which the caller's frame may contain a column of ours."""


def given_mapping(
    mapping: GivenMapping,
    schemas: Mapping[str, pa.Schema],
    cluster_id: str | None = None,
    **settings: int | None,
) -> TableMapping:
    """Build the complete mapping, which says which column of the caller's frames becomes which column of our tables.

    Parameters
    ----------
    mapping : mapping, path or None
        One of: a dict with the sections of a mapping file; the path of a mapping file; a short dict from columns of
        ``fetch_log`` to the caller's columns, such as ``{"replica_id": "follower", "handled_time": {"column": "ts",
        "unit": "ms"}}``; None. With a short dict or None, all other columns are found by name. A short dict may also
        contain the keys of a mapping file that are not sections, such as ``cluster_id``.
    schemas : mapping of str to pa.Schema
        The schema of each frame, by mapping section (``fetches``, ``appends``, ``epochs`` or ``changes``). If the
        mapping lacks the section of a frame, the columns of this frame are found by name.
    cluster_id : str, optional
        Name of the cluster. If omitted, the first of these that exists: the mapping's ``cluster_id``; the column
        ``cluster_id``, if all frames have it; the constant `CLUSTER`.
    **settings : int or None
        Values for further top-level keys of the mapping. They override the mapping's own values, unless they are None.

    Raises
    ------
    UsageError
        If the mapping is wrong or required columns are missing. The message lists all mistakes.
    """
    tree, where = mapping_tree(mapping)
    for name, value in settings.items():
        if isinstance(value, bool):  # True and False are ints in Python
            raise UsageError(f"{_ARGUMENTS.get(name, name)}={value} is not a number")
    if cluster_id is not None and not cluster_id:
        raise UsageError("cluster_id is empty", "omit it, or name the cluster")
    short = tree.keys().isdisjoint(SECTIONS)
    given = _as_sections(tree) if short else tree
    without = [name for name in SECTIONS if name in given and name not in schemas]
    if without:
        raise UsageError(f"{where} maps {', '.join(without)}, but no such frame is given",
                         f"give them as {'=..., '.join(without)}=..., or take them out of the mapping")  # fmt: skip
    whole: dict[str, Any] = {name: value for name, value in given.items() if name not in SECTIONS}
    mistakes: list[str] = []
    for name, schema in schemas.items():
        section = dict(given.get(name) or {})
        if short or name not in given:
            known = section.get("columns", {})
            section["columns"] = {**_given_by_name(SECTIONS[name], schema, known), **known}
            mistakes += _missing_in_given(name, schema, section["columns"])
        whole[name] = section if name == "fetches" else {**section, "path": name}
    if mistakes:
        raise UsageError("\n  ".join(mistakes), _EXAMPLE)
    if cluster_id is not None:
        whole["cluster_id"] = cluster_id
    elif "cluster_id" not in whole:
        has_column = all("cluster_id" in schema.names for schema in schemas.values())
        whole["cluster_id"] = {"column": "cluster_id"} if has_column else CLUSTER
    whole |= {name: value for name, value in settings.items() if value is not None}
    return mapping_of(whole, where)


def _as_sections(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a short mapping to the form of a mapping file: the columns of fetches move into ``fetches.columns``."""
    of_all = {name: given for name, given in columns.items() if name in TableMapping.model_fields}
    return {**of_all, "fetches": {"columns": {name: columns[name] for name in columns if name not in of_all}}}


def mapping_tree(mapping: GivenMapping) -> tuple[dict[str, Any], str]:
    """Read the argument ``mapping`` into a dict, whose content is not validated yet.

    Returns
    -------
    dict
    str
        The name of the mapping in error messages: ``the mapping``, or the path of its file.

    Raises
    ------
    UsageError
        If the argument is neither a dict, a readable file's path, nor None.
    """
    if mapping is None:
        return {}, "the mapping"
    if isinstance(mapping, Mapping):
        return dict(mapping), "the mapping"
    if isinstance(mapping, str | PathLike):
        return read_mapping(Path(mapping)), str(mapping)
    raise UsageError(f"mapping is {shown_type(mapping)}, and a dict or the path of a YAML file is expected", _EXAMPLE)


def _given_by_name(section: type[MappedColumns], schema: pa.Schema, known: Mapping[str, Any]) -> dict[str, str]:
    """Return {our column: frame's column} for columns with the same name (or the one in `_ALSO`), except ``known``."""
    found = {}
    for name in section.model_fields:
        there = next((column for column in (name, _ALSO.get(name)) if column in schema.names), None)
        if there is not None and name not in known:
            found[name] = there
    return found


def _missing_in_given(name: str, schema: pa.Schema, columns: Mapping[str, Any]) -> list[str]:
    """Return one error message per required column of a section that is not among the mapped ``columns``."""
    section = SECTIONS[name]
    missing = [
        column for column, field in section.model_fields.items() if field.is_required() and column not in columns
    ]
    if section is FetchColumns and not {"handled_time", "arrival_time"} & columns.keys():
        missing.append("handled_time or arrival_time")
    there = ", ".join(schema.names) or "none"
    return [f"{name}: column {column} is missing; there are {there}" for column in missing]


def given_rules(rules: Sequence[str] | str) -> list[RuleRun]:
    """Convert the argument ``rules`` (ids of rules, or "all") to one rule run per distinct id.

    A rule run is a rule with its parameters, here the defaults.

    Raises
    ------
    UsageError
        If a rule is unknown or none is given.
    """
    given: Any = rules  # callers may not check their types
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise UsageError(f"rules is {shown_type(rules)}, and ids of rules are expected, or 'all'",
                         "as in rules=['kafka-3.7']; `isr-batch replay --set` takes parameters of rules")  # fmt: skip
    names: list[Any] = ALL_RULES if given == "all" else [given] if isinstance(given, str) else list(given)
    for name in names:
        if not isinstance(name, str) or name not in REGISTRY:
            raise UsageError(f"no rule {name or repr(name)}; {did_you_mean(str(name), sorted(REGISTRY))}",
                             "`isr-batch rules list` names them")  # fmt: skip
    if not names:
        raise UsageError("no rule is given", "name some, or omit rules for all")
    return [RuleRun(name, {}) for name in dict.fromkeys(names)]
