"""Whether a cluster has eligible leader replicas: as its logs say, or as the operator does."""

from typing import Any

import pytest

from isr_batch.scoring.controller_words import ControllerWord
from isr_batch.scoring.eligible_leaders import Elr, eligible_leader_cluster

NOTHING: dict[str, Any] = {"major": 4, "printed_in": None}
VERSION = ControllerWord(10, 1, "metadata_version", value=27)
ON, OFF = ControllerWord(10, 2, "elr_version", value=1), ControllerWord(90, 3, "elr_version", value=0)


@pytest.mark.parametrize(
    ("words", "facts", "said"),
    [
        ([VERSION, ON], {}, ("recorded", True, [ON])),
        ([VERSION, ON, OFF], {}, ("recorded", True, [ON, OFF])),
        ([VERSION], {}, ("recorded", False, [])),  # a cluster that was upgraded, and not switched on
        ([VERSION, ON._replace(at_us=50)], {}, ("recorded", False, [ON._replace(at_us=50)])),
        ([], {"major": 3}, ("release", False, [])),
        ([], {"printed_in": "logged"}, ("logged", True, [])),
        ([], {"printed_in": "snapshot"}, ("snapshot", True, [])),
        ([], {}, ("unknown", None, [])),
        ([], {"major": None}, ("unknown", None, [])),
    ],
)
def test_auto_takes_it_from_the_log(
    words: list[ControllerWord], facts: dict[str, Any], said: tuple[str, bool | None, list[ControllerWord]]
) -> None:
    cluster = eligible_leader_cluster(words, NOTHING | facts, "auto")
    assert (cluster.source, cluster.enabled, list(cluster.words)) == said


@pytest.mark.parametrize(("elr", "enabled"), [("on", True), ("off", False)])
def test_the_operators_word_counts_for_all_time(elr: Elr, enabled: bool) -> None:
    lost = ControllerWord(5, 0, "unclean_restart", broker_id=2)
    cluster = eligible_leader_cluster([lost, VERSION, ON, OFF], NOTHING, elr)
    assert (cluster.source, cluster.enabled, list(cluster.words)) == ("given", enabled, [lost])
