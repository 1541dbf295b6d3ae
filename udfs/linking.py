"""Compile every kernel function once, as part of the entry points that call it.

By default, numba optimises each function together with all functions that it calls, and generates machine code for it.
It then does the same again for each of the function's callers (docs/adr/0008 has the times). This module uses numba's
internals, so numba is pinned to one release.
"""

from typing import Any

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Part(JITCodeLibrary):  # type: ignore[misc]  # numba comes without types
    """The code of a function that only compiled functions call. No machine code is generated for it alone."""

    _linking_libraries: list[Any]

    def finalize(self) -> None:
        """Do nothing: the entry points that link this part are optimised instead."""
        self.callees, self._finalized = self._linking_libraries, True

    @property
    def codegen(self) -> "_Part":
        """Stand-in for the code generator, which numba only uses to set the environment of the machine code."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: this library has no machine code."""


class _EntryPoint(JITCodeLibrary):  # type: ignore[misc]
    """The code of a function that Python calls."""

    _linking_libraries: list[Any]

    def finalize(self) -> None:
        """Link every function that this one calls, directly or indirectly, exactly once, and optimise the result."""
        found = dict.fromkeys(self._linking_libraries)
        waiting = [*found]
        while waiting:
            part = waiting.pop()
            callees = part.callees if isinstance(part, _Part) else []
            waiting += [library for library in callees if library not in found]
            found |= dict.fromkeys(callees)
        self._linking_libraries = [*found]
        super().finalize()

    def _optimize_final_module(self) -> None:
        """Mark the linked functions as internal, so that LLVM drops unused arguments."""
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr and not function.is_declaration:
                function.linkage = Linkage.internal
        super()._optimize_final_module()


class LinkedForCallers(Compiler):  # type: ignore[misc]
    """Compiler for ``numba.njit`` of a function that only compiled functions call."""

    library: type[JITCodeLibrary] = _Part

    def define_pipelines(self) -> Any:
        """Return numba's default passes, after setting `library` as the class that receives the compiled code."""
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()


class LinkedForPython(LinkedForCallers):
    """Compiler for ``numba.njit`` of an entry point, which Python calls."""

    library = _EntryPoint
