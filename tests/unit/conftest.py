"""What unit tests share."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kernel_ledger import LedgerOf


@pytest.fixture(params=["naive", "kernel"])
def ledger_of(request: pytest.FixtureRequest) -> "LedgerOf":
    """Keep books, the naive way or the kernel's; histograms in place of latencies."""
    from tests.kernel_ledger import IMPLEMENTATIONS

    return IMPLEMENTATIONS[request.param]
