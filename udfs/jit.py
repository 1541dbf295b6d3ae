"""The one door to numba, and a table of compiled functions."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from numba import njit

from udfs.linking import ForCallers

Compiled = TypeVar("Compiled", bound=Callable[..., Any])

# _nrt: nothing is allocated in a kernel, and without reference counts the replay ran in half the time.
# Wrappers for the interpreter and for C took half of the compile time; only entry points need one.
_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
_FOR_CALLERS = {**_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": ForCallers}


def kernel(function: Compiled) -> Compiled:
    """Compile a function that only compiled functions call; it must not allocate.

    Only entry points are kept on disk (``isr_batch.replay.kernel_cache``), with all that they call.
    """
    return njit(**_FOR_CALLERS)(function)


def inlined(function: Compiled) -> Compiled:
    """Compile a kernel into its callers.

    A tuple of arrays is handed over as some hundred numbers, which in a loop over partitions took most of the time.
    """
    return njit(forceinline=True, **_FOR_CALLERS)(function)


def entry(function: Compiled) -> Compiled:
    """Compile a function that Python calls."""
    return njit(**_OPTIONS)(function)


def table(functions: Sequence[Compiled]) -> Compiled:
    """Make one compiled function that calls ``functions[code]`` with the remaining arguments.

    numba has no cheap call through a pointer into compiled code, but it does inline a chain of
    comparisons. Functions that several rules share are compiled once.

    Parameters
    ----------
    functions : sequence of compiled functions
        All of one signature and one result type.

    Returns
    -------
    compiled function ``(code, *arguments)``
        ``code`` is an int64 index into ``functions``.
    """
    unique: list[Compiled] = []
    for function in functions:
        if function not in unique:
            unique.append(function)
    branch_of_code = tuple(unique.index(function) for function in functions)
    chain: Any = _last(unique[-1])
    for branch in range(len(unique) - 2, -1, -1):
        chain = _either(branch, unique[branch], chain)

    @kernel
    def call(code, *arguments):
        return chain(branch_of_code[code], *arguments)

    return call


def _either(branch: int, function: Any, rest: Any) -> Any:
    @kernel
    def choose(code, *arguments):
        if code == branch:
            return function(*arguments)
        return rest(code, *arguments)

    return choose


def _last(function: Any) -> Any:
    @kernel
    def only(_code, *arguments):
        return function(*arguments)

    return only
