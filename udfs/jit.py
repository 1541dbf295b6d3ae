"""Decorators and dispatch tables to compile functions with numba. No other module calls numba's decorators."""

from collections.abc import Callable, Sequence
from dis import get_instructions
from functools import cached_property, update_wrapper
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np

Compiled = TypeVar("Compiled", bound=Callable[..., Any])

# _nrt is off, because nothing is allocated in a kernel, and the replay runs in half the time without reference counts.
# Wrappers for the interpreter and for C are off except for entry points: they took half of the compilation time.
_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
_FOR_CALLERS = {**_OPTIONS, "no_cpython_wrapper": True}


class Kernel:
    """A function that compiled code calls. numba compiles it with its caller; if Python calls it, it runs uncompiled.

    numba is imported at the first compilation, because many commands only need the names of rules.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self._options = options

    def __call__(self, *arguments: Any) -> Any:
        """Run the function uncompiled."""
        return self.py_func(*arguments)

    @cached_property
    def compiled(self) -> Any:
        """The function's numba dispatcher, created at first use. numba compiles the function with its first caller."""
        from numba import njit

        from udfs.linking import LinkedForCallers

        return njit(pipeline_class=LinkedForCallers, **_FOR_CALLERS, **self._options)(self.py_func)

    @property
    def _numba_type_(self) -> Any:
        """The numba type of this function. numba reads this attribute when a compiled function uses this one."""
        return self.compiled._numba_type_


def kernel(function: Compiled) -> Compiled:
    """Wrap a function so that compiled functions can call it. The function must not allocate memory.

    Machine code is stored on disk (``isr_batch.replay.kernel_cache``) for entry points only. It includes all functions
    that they call.
    """
    # forceinline=False, because numba would otherwise inline a function if one of its callers is inlined.
    return cast("Compiled", Kernel(function, forceinline=False))


def inlined(function: Compiled) -> Compiled:
    """Wrap a function so that numba inlines it into the compiled functions that call it.

    Without inlining, a call passes a tuple of arrays as about a hundred numbers. In loops over partitions, these calls
    took most of the time.
    """
    return cast("Compiled", Kernel(function, forceinline=True))


class Entry(Kernel):
    """A function that numba compiles when Python first calls it."""

    def __call__(self, *arguments: Any) -> Any:
        """Run the compiled function."""
        return self.compiled(*arguments)

    @cached_property
    def compiled(self) -> Any:
        """The function's numba dispatcher, created at first use. It compiles the function at the first call."""
        from numba import njit

        from udfs.linking import LinkedForPython

        return njit(pipeline_class=LinkedForPython, **_OPTIONS)(self.py_func)


def entry(function: Compiled) -> Compiled:
    """Wrap a function so that Python runs it compiled. numba compiles it at its first call."""
    return cast("Compiled", Entry(function))


def dispatch_table(functions: Sequence[Compiled]) -> Compiled:
    """Return a compiled function that calls ``functions[code]`` with the remaining arguments.

    numba has no cheap call through a function pointer, but it does inline a chain of comparisons. A function that
    occurs several times in ``functions`` is compiled once.

    Parameters
    ----------
    functions : sequence of compiled functions
        Functions with the same signature and result type.

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
    # The source is generated, because numba cannot select a function by index; the last branch needs no comparison.
    arguments = ", ".join(f"argument_{i}" for i in range(len(signature(functions[0]).parameters)))
    branches = [f"if branch == {branch}: return function_{branch}({arguments})" for branch in range(len(places) - 1)]
    lines = ["branch = branch_of_code[code]", *branches, f"return function_{len(places) - 1}({arguments})"]
    text = "\n    ".join([f"def call(code, {arguments}):", *lines])
    found: dict[str, Any] = {}
    exec(text, {"__name__": __name__, "branch_of_code": branch_of_code, **names}, found)  # noqa: S102
    return inlined(found["call"])


def compiled_text(function: Any) -> object:
    """Return a key that is equal for functions with equal byte code, constants and values of global names.

    A closure, or a function that is not a `Kernel`, is returned unchanged, so that it equals only itself.
    """
    python = getattr(function, "py_func", None)
    if python is None or python.__closure__:
        return function
    code = python.__code__
    constants = code.co_consts[1:] if code.co_consts[:1] == (python.__doc__,) else code.co_consts
    return code.co_code, repr(constants), code.co_names, tuple(map(_value_as_text, global_values(python).values()))


def global_values(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the values of the global names that a Python function uses, in order of use."""
    used = [step.argval for step in get_instructions(function.__code__) if step.opname == "LOAD_GLOBAL"]
    return {name: function.__globals__[name] for name in used if name in function.__globals__}


def _value_as_text(value: Any) -> object:
    """Return a comparable form of a global value: a number with its type, or the `compiled_text` of a function."""
    return (type(value), value) if isinstance(value, int | float | np.int64) else compiled_text(value)
