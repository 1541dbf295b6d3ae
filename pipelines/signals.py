"""End a command cleanly at SIGTERM and SIGINT, so that the lease is released and the run log records the end."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.output import Output


class _StoppedBySignal(SystemExit):
    """Raised in the running command by a signal, so that the command ends as after an error."""


@contextmanager
def ended_by_signals(out: Output) -> Iterator[None]:
    """Let a signal end the command cleanly; a second signal of the same kind ends the process at once.

    Raises
    ------
    SystemExit
        With exit code 128 plus the number of the signal.
    """
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        """Raise the exception that ends the command, and let the next signal of this kind end the process."""
        signal.signal(number, signal.SIG_DFL)
        stopped.append(number)
        raise _StoppedBySignal(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except BaseException:
        # An error after a signal is a consequence of it, because a scheduler also stops Spark's JVM.
        if not stopped:
            raise
        code = 128 + stopped[0]
        out.error(
            f"stopped by {signal.Signals(stopped[0]).name}", "incomplete work is discarded: repeat the command", code
        )
        sys.exit(code)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
