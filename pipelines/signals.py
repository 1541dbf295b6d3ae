"""Handle SIGTERM and SIGINT so that a command ends cleanly: the lease is released, and the run log records the end."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.output import Output


class _StoppedBySignal(SystemExit):
    """Raised by the signal handler, so that the running command ends in the same way as after an error."""


@contextmanager
def ended_by_signals(out: Output) -> Iterator[None]:
    """Make SIGTERM and SIGINT end the block cleanly. A second signal of the same kind ends the process at once.

    Parameters
    ----------
    out : Output
        Prints which signal stopped the command.

    Raises
    ------
    SystemExit
        After a signal, with the exit code 128 plus the number of the signal.
    """
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        """Raise the exception that ends the command. The next signal of this kind ends the process."""
        signal.signal(number, signal.SIG_DFL)
        stopped.append(number)
        raise _StoppedBySignal(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except BaseException:
        # An error after a signal is a consequence of the signal, because schedulers stop Spark's JVM too.
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
