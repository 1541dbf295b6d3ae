"""Which fetcher thread fetches a partition: ours against the released classes."""

import random

import pytest

from isr_batch.ingest.terms.mid_term import mid_term_fetcher
from tests.conformance.releases import Releases

pytestmark = pytest.mark.conformance

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
LEAST_NEGATIVE = ("polygenelubricants", 0)
"""A text whose hash in Java is the least int, which has no absolute value; times 31 it is the same again."""


def partitions(seed: int, count: int = 2_000) -> list[tuple[str, int]]:
    choice = random.Random(seed)
    names = ["".join(choice.choices(LETTERS, k=choice.randint(1, 60))) for _ in range(count)]
    return [LEAST_NEGATIVE, *((name, choice.choice((0, 1, 7, 4_000, 2**31 - 1))) for name in names)]


@pytest.mark.parametrize("release", ["0.10.2.2", "2.1.1", "2.4.1", "3.6.2", "4.1.0"])
def test_a_partition_belongs_to_the_thread_of_the_release(release: str, releases: Releases) -> None:
    driver = releases.driver(release, "FetcherIds")
    seen = set()
    for fetchers in (1, 2, 3, 8, 17):
        asked = partitions(fetchers)
        told = str(driver.call("ids", "\n".join(f"{topic} {number}" for topic, number in asked), fetchers)).split(",")
        assert [mid_term_fetcher(topic, number, fetchers) for topic, number in asked] == [int(each) for each in told]
        seen |= {int(each) for each in told}
    assert seen == set(range(17))
