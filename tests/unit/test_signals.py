"""A signal ends a command with its own code, whatever fails while the command ends."""

import signal

import pytest

from pipelines.output import Output
from pipelines.signals import ended_by_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("fails", [None, RuntimeError("the JVM is gone"), SystemExit(2)])
def test_errors_after_a_signal_follow_from_it(
    number: signal.Signals, fails: BaseException | None, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        try:
            signal.raise_signal(number)
        finally:
            if fails:
                raise fails

    usual = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended, ended_by_signals(Output()):
        command()
    assert ended.value.code == 128 + number
    said = capsys.readouterr().err
    assert f"stopped by {number.name}" in said
    assert "bug" not in said
    assert signal.getsignal(number) is usual


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="no signal"), ended_by_signals(Output()):
        raise RuntimeError("no signal")
