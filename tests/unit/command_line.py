"""The command line as tests run it."""

from collections.abc import Callable

Run = Callable[..., tuple[int, str, str]]
"""Runs a command; gives exit code, stdout and stderr."""
