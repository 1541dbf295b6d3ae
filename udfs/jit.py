"""The one door to numba, and a table of compiled functions."""

from collections.abc import Callable, Sequence
from dis import get_instructions
from typing import Any, TypeVar

import numpy as np
from numba import njit

from udfs.linking import LinkedForCallers, LinkedForPython

Compiled = TypeVar("Compiled", bound=Callable[..., Any])

# _nrt: nothing is allocated in a kernel, and without reference counts the replay ran in half the time.
# Wrappers for the interpreter and for C took half of the compile time; only entry points need one.
_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
_FOR_CALLERS = {**_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": LinkedForCallers}


def kernel(function: Compiled) -> Compiled:
    """Compile a function that only compiled functions call; it must not allocate.

    Only entry points are kept on disk (``isr_batch.replay.kernel_cache``), with all that they call.
    """
    # Without a word, a function is compiled into its callers because one of them is.
    return njit(forceinline=False, **_FOR_CALLERS)(function)


def inlined(function: Compiled) -> Compiled:
    """Compile a kernel into its callers.

    A tuple of arrays is handed over as some hundred numbers, which in a loop over partitions took most of the time.
    """
    return njit(forceinline=True, **_FOR_CALLERS)(function)


def entry(function: Compiled) -> Compiled:
    """Compile a function that Python calls."""
    return njit(pipeline_class=LinkedForPython, **_OPTIONS)(function)


def dispatch_table(functions: Sequence[Compiled]) -> Compiled:
    """Make one compiled function that calls ``functions[code]`` with the remaining arguments.

    numba has no cheap call through a pointer into compiled code, but it does inline a chain of
    comparisons. What several rules have, each in its own file, is compiled once.

    Parameters
    ----------
    functions : sequence of compiled functions
        All of one signature and one result type.

    Returns
    -------
    compiled function ``(code, *arguments)``
        ``code`` is an int64 index into ``functions``.
    """
    texts = [compiled_text(function) for function in functions]
    first = [texts.index(text) for text in texts]
    places = sorted(set(first))
    branch_of_code = tuple(places.index(place) for place in first)
    names = {f"function_{branch}": functions[place] for branch, place in enumerate(places)}
    # Written out, since numba cannot take one of several functions by a number; the last needs no comparison.
    branches = [f"if branch == {branch}: return function_{branch}(*arguments)" for branch in range(len(places) - 1)]
    lines = ["branch = branch_of_code[code]", *branches, f"return function_{len(places) - 1}(*arguments)"]
    text = "\n    ".join(["def call(code, *arguments):", *lines])
    found: dict[str, Any] = {}
    exec(text, names | {"branch_of_code": branch_of_code, "__name__": __name__}, found)  # noqa: S102
    return inlined(found["call"])


def compiled_text(function: Any) -> object:
    """All that a compiled function does: its code, and what the global names in it stand for; to be compared only."""
    python = getattr(function, "py_func", None)
    if python is None or python.__closure__:
        return function
    code = python.__code__
    constants = code.co_consts[1:] if code.co_consts[:1] == (python.__doc__,) else code.co_consts
    used = [step.argval for step in get_instructions(code) if step.opname == "LOAD_GLOBAL"]
    values = [_value(python.__globals__[name]) for name in used if name in python.__globals__]
    return code.co_code, repr(constants), code.co_names, tuple(values)


def _value(value: Any) -> object:
    return (type(value), value) if isinstance(value, int | float | np.int64) else compiled_text(value)
