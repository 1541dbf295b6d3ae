"""Fixtures shared by unit tests."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isr_batch.lake.arrow_sql import ArrowSql
    from tests.kernel_ledger import LedgerOf
    from tests.unit.command_line import Run


@pytest.fixture(params=["naive", "kernel"])
def ledger_of(request: pytest.FixtureRequest) -> "LedgerOf":
    """Keep a ledger, the naive way or the kernel's; histograms in place of latencies."""
    from tests.kernel_ledger import IMPLEMENTATIONS

    return IMPLEMENTATIONS[request.param]


@pytest.fixture
def isr_batch(capsys: pytest.CaptureFixture[str]) -> "Run":
    """Run the command line; gives exit code, stdout and stderr."""
    from pipelines import cli

    def run(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exited:
            cli.main(list(args))
        captured = capsys.readouterr()
        return int(exited.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def sql() -> "Iterator[ArrowSql]":
    """Open an engine for SQL on lines of logs."""
    from isr_batch.broker_lines.log_sql import log_sql

    with log_sql() as engine:
        yield engine
