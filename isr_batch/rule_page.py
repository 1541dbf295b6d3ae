"""Return the functions that a rule consists of, with their source code, for the command `rules show`."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from numbers import Number
from typing import Any, NamedTuple

from udfs.jit import Kernel, global_values
from udfs.rules import REGISTRY, module_of
from udfs.rules.base import Rule

COMMON = "common"
"""The origin of functions that do not come from a rule's file, such as those of ``udfs.rules.base``."""

_ORIGINS = {f"udfs.rules.{module_of(rule)}": rule for rule in REGISTRY}


class RuleFunction(NamedTuple):
    """A function of a rule, or a function that such a function calls.

    Attributes
    ----------
    name : str
    origin : str
        Id of the rule whose file defines the function; `COMMON` for other files.
    what : str
        First paragraph of the function's docstring.
    code : str
    constants : dict
        Values of the numeric constants that the function uses, by name.
    """

    name: str
    origin: str
    what: str
    code: str
    constants: dict[str, Number]


def functions_of_rule(rule: Rule) -> list[RuleFunction]:
    """Return the functions of a rule that are not the defaults of `Rule`, and the compiled functions that they call.

    The order is that of the fields of `Rule`, but each function comes after the functions that it calls.
    """
    names: dict[Callable[..., Any], str] = {}
    for field in fields(Rule):
        function = getattr(rule, field.name)
        if isinstance(function, Kernel) and function is not field.default:
            for called in _kernels_called_by(function.py_func):
                names.setdefault(called, called.__name__)
            names[function.py_func] = field.name
    return [_rule_function(function, name) for function, name in names.items()]


def _kernels_called_by(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the compiled functions that a function calls, each after the functions that it calls itself."""
    for value in global_values(function).values():
        if isinstance(value, Kernel):
            yield from _kernels_called_by(value.py_func)
            yield value.py_func


def _rule_function(function: Callable[..., Any], name: str) -> RuleFunction:
    """Return the description of a function under this name."""
    what = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    used = global_values(function).items()
    constants = {name: value for name, value in used if isinstance(value, Number)}
    return RuleFunction(name, _ORIGINS.get(function.__module__, COMMON), what, inspect.getsource(function), constants)
