"""Gauges for a monitoring system."""

import re
import shlex

import yaml

from isr_batch.incidents.prometheus import prometheus_exposition
from tests.own_shrinks_log import Log, leader_was_silent
from tests.unit.incidents.test_rule_choices import score
from tests.unit.test_documented_commands import ROOT, check

SAMPLE = re.compile(r'([a-z_:][a-z0-9_:]*)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (-?[0-9.e+]+)')
"""A line of Prometheus' text format, as far as it is used here."""


def read(text: str) -> dict[tuple[str, str], float]:
    """Parse, strictly: each metric has its HELP and TYPE before its values, and no labels come twice."""
    found: dict[tuple[str, str], float] = {}
    known = ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped = line.split(" ")[2]
        elif line.startswith("# TYPE "):
            _, _, known, kind = line.split(" ")
            assert (known, kind) == (helped, "gauge")
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            name, labels, value = sample.groups()
            assert name == known
            assert (name, labels) not in found
            found[name, labels] = float(value)
    return found


def test_counts_by_verdict_have_zeros() -> None:
    log = Log()
    leader_was_silent(log)
    found = read(prometheus_exposition(log.found(), []))
    dropped = {labels: value for (name, labels), value in found.items() if name == "isr_batch_dropped_followers"}
    assert dropped == {
        'cluster="c",verdict="spurious"': 4, 'cluster="c",verdict="genuine"': 1, 'cluster="c",verdict="excluded"': 0,
        'cluster="c",verdict="unknown"': 0,
    }  # fmt: skip
    pair = 'cluster="c",leader="1",follower="3",verdict="spurious"'
    assert found["isr_batch_dropped_followers_by_pair", pair] == 2
    assert found["isr_batch_matched_changes", 'cluster="c"'] == found["isr_batch_checked_changes", 'cluster="c"'] == 5
    assert found["isr_batch_log_end_timestamp_seconds", 'cluster="c"'] == 1_767_225_600 + 100


def test_scores_of_rules() -> None:
    rows = [score("kafka-3.7", 4, 1, 5000), score("kafka-10853-hw", 0, 7, None)]
    found = read(prometheus_exposition(Log().found(), rows))
    params = 'replica_lag_time_max_ms="4000"'
    assert found["isr_batch_rule_shrinks", f'cluster="c",rule="kafka-3.7",{params},verdict="spurious"'] == 4
    assert found["isr_batch_rule_misses", f'cluster="c",rule="kafka-10853-hw",{params}'] == 7
    detection = {labels: value for (name, labels), value in found.items() if "detection" in name}
    assert detection == {f'cluster="c",rule="kafka-3.7",{params}': 5}


def test_names_may_hold_anything() -> None:
    log = Log()
    for rows in log.rows.values():
        for row in rows:
            row["cluster_id"] = 'a"b\\c\nd'
    found = read(prometheus_exposition(log.found(), []))
    assert found["isr_batch_checked_changes", r'cluster="a\"b\\c\\x0ad"'] == 0


def test_an_empty_lake_has_no_metrics() -> None:
    log = Log()
    log.rows = {name: [] for name in log.rows}
    assert prometheus_exposition(log.found(), []) == ""


def test_the_alerts_ask_for_metrics_that_there_are() -> None:
    log = Log()
    leader_was_silent(log)
    there = {name for name, _ in read(prometheus_exposition(log.found(), []))}
    rules = yaml.safe_load((ROOT / "deploy/prometheus/isr_batch.rules.yaml").read_text(encoding="utf-8"))
    (group,) = rules["groups"]
    assert {rule["alert"] for rule in group["rules"]} == {
        "HealthyFollowersDropped", "ReplayDisagreesWithBrokers", "KafkaLogsMissing"
    }  # fmt: skip
    for rule in group["rules"]:
        assert {*rule} == {"alert", "expr", "labels", "annotations"}
        asked = {*re.findall(r"isr_batch_\w+", rule["expr"])}
        assert asked
        assert asked <= there
        assert rule["expr"].count("(") == rule["expr"].count(")")
        for command in re.findall(r"isr-batch ([a-z]+ --lake LAKE)", rule["annotations"]["description"]):
            check(shlex.split(command))
