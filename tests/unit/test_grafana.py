"""The dashboard asks for gauges and labels that are exported, and is laid out without overlaps."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

from isr_batch.incidents import colours
from isr_batch.incidents.prometheus import prometheus_exposition
from tests.own_shrinks_log import Log, leader_was_silent
from tests.unit.incidents.test_prometheus import read
from tests.unit.incidents.test_rule_choices import score

FILE = Path(__file__).parents[2] / "deploy/grafana/isr-batch.json"


def dashboard() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def test_each_query_names_gauges_and_labels_that_are_exported() -> None:
    log = Log()
    leader_was_silent(log)
    exported: dict[str, set[str]] = {}
    for name, labels in read(prometheus_exposition(log.found(), [score("kafka-3.7", 4, 1, 5000)])):
        exported.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    board = dashboard()
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [one["expr"] for one in board["annotations"]["list"]]
    queries += [one["definition"] for one in board["templating"]["list"] if one["type"] == "query"]
    assert len(queries) >= 12
    for query in queries:
        (name, *others) = re.findall(r"isr_batch_\w+", query)
        of_gauge = set.intersection(*(exported[each] for each in (name, *others)))
        asked = {label for within in re.findall(r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)=", within)}
        asked |= {label for by in re.findall(r"by \(([^)]*)\)", query) for label in by.split(", ")}
        assert asked <= of_gauge, query
    shown = json.dumps([board["annotations"], board["panels"]])
    assert set(re.findall(r"\{\{(\w+)\}\}", shown)) <= set.union(*exported.values())


def test_an_incident_is_an_annotation_at_its_time() -> None:
    log = Log()
    leader_was_silent(log)
    found = read(prometheus_exposition(log.found(), []))
    ((labels, value),) = ((labels, value) for (name, labels), value in found.items() if "incident" in name)
    assert labels == 'cluster="c",broker="1",incident="1",verdict="spurious",title="Broker 1 was silent for 6 s"'
    assert value == 1_767_225_600 + 10  # when the silence began
    for one in dashboard()["annotations"]["list"]:
        assert one["useValueForTime"]
        assert one["expr"].endswith(" * 1000")  # Grafana takes milliseconds


def test_panels_do_not_overlap_and_colours_are_those_of_the_report() -> None:
    board = dashboard()
    places = [panel["gridPos"] for panel in board["panels"]]
    assert len({panel["id"] for panel in board["panels"]}) == len(places)
    for a, b in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert [one["iconColor"] for one in board["annotations"]["list"]] == [*colours.VERDICT_COLOURS.values()]
