"""SIGTERM and SIGINT end a command cleanly: the lease is released, and the run log records the end."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.output import Output


class _StoppedBySignal(SystemExit):
    """Raised in the running command by a signal; the command then ends as after an error."""


@contextmanager
def ended_by_signals(out: Output) -> Iterator[None]:
    """Let a signal end the command cleanly; a second signal of the same kind ends it at once.

    Raises
    ------
    SystemExit
        With exit code 128 plus the number of the signal.
    """

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise _StoppedBySignal(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except _StoppedBySignal as stopped:
        code = int(stopped.code or 0)
        out.error(
            f"stopped by {signal.Signals(code - 128).name}",
            "incomplete work is discarded: repeat the command",
            code,
        )
        sys.exit(code)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
