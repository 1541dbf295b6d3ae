"""The bounded history of appends: exact while it fits, early by at most one neighbour when it does not."""

import pytest

from udfs.jit import entry
from udfs.kernel import append_history
from udfs.kernel.append_history import AppendHistory, new_append_history
from udfs.records import NEVER_US


@entry
def fill(kept: AppendHistory, appends: int, held_by_all: int) -> None:
    """One record a millisecond, from offset 0 on."""
    append_history.begin_append_history(kept, 0, 0)
    for n in range(appends):
        append_history.remember_append(kept, n + 1, (n + 1) * 1000, min(held_by_all, n + 1))


@entry
def since(kept: AppendHistory, log_end_offset: int) -> int:
    return append_history.missing_since(kept, log_end_offset)


@pytest.mark.parametrize("appends", [0, 1, 7, 8, 15])
def test_it_is_exact_while_it_fits(appends: int) -> None:
    kept = new_append_history(16)
    fill(kept, appends, 0)
    for offset in range(appends):
        assert since(kept, offset) == (offset + 1) * 1000
    assert since(kept, appends) == NEVER_US


def test_appends_that_every_follower_has_are_forgotten_and_the_rest_stays_exact() -> None:
    kept = new_append_history(16)
    fill(kept, 1000, 995)
    for offset in range(995, 1000):
        assert since(kept, offset) == (offset + 1) * 1000


def test_when_too_much_is_missing_the_answer_is_early_but_never_late() -> None:
    kept = new_append_history(16)
    fill(kept, 1001, 0)
    first, end = kept.used
    gaps = kept.time_us[first + 1 : end] - kept.time_us[first : end - 1]
    for offset in range(1001):
        early = (offset + 1) * 1000 - since(kept, offset)
        assert 0 <= early <= gaps.max()
    assert since(kept, 1001) == NEVER_US
    assert end <= 16
