"""Read users' YAML files. Only mappings, lists, text, numbers, booleans and null are allowed, and sizes are limited.

With aliases, a few hundred bytes of YAML can expand to more than fits in memory, and with nested brackets they can take
minutes to parse. The limits are far above what real files need.
"""

import math
import re
from pathlib import Path
from typing import Any, Final

import yaml

MAX_BYTES: Final = 1 << 16
MAX_DEPTH, MAX_NODES, MAX_CHARACTERS, MAX_DIGITS = 16, 10_000, 4_096, 18
_NO_TEXT: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_OTHER_BASE: Final = re.compile(r"[-+]?0\d|.*:")
"""Matches numbers that YAML 1.1 reads in another base than people expect: 010 as eight, 1:30 as ninety."""
_TYPES: Final = ("null", "bool", "int", "float", "str", "seq", "map")


class BadYamlError(yaml.MarkedYAMLError):
    """Raised if a YAML file exceeds a limit, or contains an element that is not allowed."""


def load_yaml(file: Path) -> Any:  # noqa: ANN401 (whatever the file has)
    """Return the content of a YAML file, as dicts, lists and scalars; None if the file is empty.

    Raises
    ------
    OSError
        If the file cannot be opened.
    yaml.YAMLError
        If the file is not valid. The message says what is wrong, and where.
    """
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise BadYamlError(problem=f"it has more than {MAX_BYTES >> 10} KiB")
    try:
        loader = _YamlLoader(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadYamlError(problem=f"it is not UTF-8: {error.reason}") from error
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


class _YamlLoader(yaml.SafeLoader):
    """Parses YAML, and refuses deep nesting, large content, aliases, and types other than those in `_TYPES`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = self.nodes = 0

    def refuse(self, what: str) -> BadYamlError:
        """Return an error with the message ``what`` and the loader's current position in the file."""
        return BadYamlError(problem=what, problem_mark=self.get_mark())

    def fetch_flow_collection_start(self, token: object) -> None:
        # The scanner examines every open bracket again for each character, which takes minutes with deep nesting.
        if self.flow_level >= MAX_DEPTH:
            raise self.refuse(f"more than {MAX_DEPTH} levels")
        super().fetch_flow_collection_start(token)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise self.refuse("aliases are not read: write the value out")
        self.nodes += 1
        if self.depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise self.refuse(f"more than {MAX_DEPTH} levels or {MAX_NODES} values")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:  # noqa: FBT001, FBT002 (yaml's own)
        if node.tag.removeprefix("tag:yaml.org,2002:") not in _TYPES:
            raise BadYamlError(problem=f"values of type {node.tag[:40]} are not read", problem_mark=node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            digits = {"int": MAX_DIGITS, "float": 2 * MAX_DIGITS}.get(node.tag.rpartition(":")[2], MAX_CHARACTERS)
            if len(node.value) > MAX_CHARACTERS or _NO_TEXT.search(node.value):
                raise BadYamlError(problem="a text too long, or with control characters", problem_mark=node.start_mark)
            if sum(map(str.isalnum, node.value)) > digits:
                raise BadYamlError(problem=f"a number of more than {digits} digits", problem_mark=node.start_mark)
            if digits != MAX_CHARACTERS and _OTHER_BASE.match(node.value):
                raise BadYamlError(problem="a number with a zero in front or a colon", problem_mark=node.start_mark)
        try:
            value = super().construct_object(node, deep)
        except (ValueError, OverflowError, LookupError) as error:
            problem = f"a value that is no {node.tag.rpartition(':')[2]}"
            raise BadYamlError(problem=problem, problem_mark=node.start_mark) from error
        if isinstance(value, float) and not math.isfinite(value):
            raise BadYamlError(problem="an infinite number, or NaN", problem_mark=node.start_mark)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise BadYamlError(problem="a key that is not text", problem_mark=key.start_mark)
        keys = [key.value for key, _ in node.value]
        if twice := next((key for number, key in enumerate(keys) if key in keys[:number]), None):
            raise BadYamlError(problem=f"{twice} is there twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


# Dates are read as text, because PyYAML would raise a plain ValueError for an invalid date.
_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in _TYPES]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
