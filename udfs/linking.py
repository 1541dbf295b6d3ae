"""Skip code generation for functions that only compiled functions call.

Otherwise numba optimises each function with everything that it calls and makes machine code of it, although its callers
link the unoptimised code and do the same again (docs/adr/0008 has the times). This uses numba's internals, so numba is
pinned to a release.
"""

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Linked(JITCodeLibrary):  # type: ignore[misc]  # numba comes without types
    """The code of a function, for entry points to link."""

    _linking_libraries: list[Any]

    def finalize(self) -> None:
        """Link nothing: numba would link into a function all that it calls, and so again into each of its callers."""
        self.callees, self._linking_libraries = self._linking_libraries, []
        super().finalize()

    def _optimize_final_module(self) -> None:
        """Leave it to the entry point, which has all of the code in view."""

    def _finalize_final_module(self) -> None:
        """Make no machine code."""
        self._finalize_dynamic_globals()
        self._finalized = True

    @property
    def codegen(self) -> "_Linked":
        """Stands in for the code generator: numba uses it only to set the environment of the machine code."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: this library has no machine code."""


class _EntryPoint(JITCodeLibrary):  # type: ignore[misc]
    """The code of a function that Python calls."""

    _linking_libraries: list[Any]

    def finalize(self) -> None:
        """Link all that it calls, and what that calls, once."""
        found = dict.fromkeys(self._linking_libraries)
        waiting = list(found)
        while waiting:
            callees = getattr(waiting.pop(), "callees", ())
            waiting += [library for library in callees if library not in found]
            found |= dict.fromkeys(callees)
        self._linking_libraries = list(found)
        super().finalize()


class LinkedForCallers(Compiler):  # type: ignore[misc]
    """Pipeline of ``numba.njit`` that links a function for compiled callers alone."""

    def define_pipelines(self) -> Any:
        """Take numba's own passes, and another place for what they make."""
        state = self.state
        state.library = _Linked(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().define_pipelines()


class LinkedForPython(Compiler):  # type: ignore[misc]
    """Pipeline of ``numba.njit`` for a function that calls those."""

    def define_pipelines(self) -> Any:
        """Take numba's own passes, and another place for what they make."""
        state = self.state
        state.library = _EntryPoint(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()
