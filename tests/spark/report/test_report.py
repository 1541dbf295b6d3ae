"""The report of the samples: its numbers are those of the tables, and a browser shows it without a word."""

import html
import json
import re
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from isr_batch.incidents.own_shrinks import drops_of_incidents, own_shrinks
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_sql import LakeSql
from isr_batch.lake.user_sql import answer
from isr_batch.report.page import MATCH_COLUMNS
from isr_batch.report.pictures import sql_of_picture
from isr_batch.report.shrinks_on_page import ShrinkInQuery, choose_shrinks_on_page
from isr_batch.scoring.broker_check import summary


def charts_of(page: str) -> dict[str, Any]:
    found = re.search(r"^const charts = (.*);$", page, re.MULTILINE)
    assert found
    return dict(json.loads(found[1]))


CLUSTERS = ("leader-stop", "restart", "follower-stop", "quiet")
"""Most healthy followers dropped first, then most drops."""


def rows_of(charts: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """All rows that are drawn in a kind of chart, one per rule, with their cluster."""
    found = []
    for number, cluster in enumerate(CLUSTERS):
        for rows in charts.get(f"{name}-{number}", {}).get("datasets", {}).values():
            for row in rows:
                rules = row["rule"].split(", ") if "rule" in row else [None]
                found += [row | {"cluster_id": cluster} | ({"rule": rule} if rule else {}) for rule in rules]
    return found


@pytest.fixture
def page(sample_report: Path) -> str:
    return sample_report.read_text(encoding="utf-8")


def test_it_is_one_file_that_asks_for_nothing(page: str) -> None:
    assert len(page) < 3_000_000
    assert not re.search(r"<(script|link|iframe)[^>]* (src|href)=", page)


def sections_of(page: str) -> dict[str, str]:
    """Sections of the page by cluster."""
    sections = re.findall(r'<section class="cluster"[^>]*>\s*<h2>([^<]+)</h2>(.*?)</section>', page, re.DOTALL)
    return {name: html.unescape(text) for name, text in sections}


def test_the_first_screen_has_the_numbers_of_the_tables(page: str, sample_lake: Lake) -> None:
    """By another way than the page's: one join."""
    sections = sections_of(page)
    clusters = {row[0] for row in sample_lake.read("leader_epochs").select("cluster_id").distinct().collect()}
    assert {*sections} == clusters
    answered, _ = answer(
        sample_lake,
        """
        SELECT cluster_id, verdict, CAST(count(*) AS INT) AS n FROM replay_check c
        JOIN shrink_verdicts v
        USING (cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id, rule, params_json)
        WHERE c.kind = 'shrink' AND v.change_time = c.replayed_time AND c.observed_time IS NOT NULL
        GROUP BY ALL
    """,
    )
    judged = Counter({(row["cluster_id"], row["verdict"]): row["n"] for row in answered})
    logged = sample_lake.read("observed_isr_changes").where("kind = 'shrink' AND made_by = 'leader'")
    for row in logged.groupBy("cluster_id").count().collect():
        figures = dict(re.findall(r"<span>([^<]+)</span><b>([^<]+)</b>", sections[row[0]]))
        assert figures["dropped by leaders"] == str(row["count"])
        assert figures["healthy"] == str(judged[row[0], "spurious"])
    assert "<h3>Broker 1 was silent for 6.09 s</h3>" in sections["leader-stop"]
    assert "Your brokers dropped no follower." not in sections["leader-stop"]
    assert "Your brokers dropped no follower." in sections["restart"]
    for name, section in sections.items():
        matrix = re.search(r'<table class="matrix".*?</table>', section, re.DOTALL)
        drawn = re.findall(r'<b class="v-(\w+)"[^>]*>(\d+)</b>', matrix[0]) if matrix else []
        for verdict in ("spurious", "genuine"):
            assert sum(int(number) for kind, number in drawn if kind == verdict) == judged[name, verdict]


def test_it_says_what_a_leaders_death_would_have_cost_without_and_with_elr(page: str, sample_lake: Lake) -> None:
    prices, _ = answer(
        sample_lake,
        """
        SELECT cluster_id, sum(leader_alone_us) / 1e6 AS alone, sum(offline_without_elr_us) / 1e6 AS without,
          sum(offline_with_elr_us) / 1e6 AS with_elr
        FROM leader_death_by_rule_and_day WHERE rule = 'kafka-3.7' GROUP BY cluster_id
    """,
    )
    assert {row["cluster_id"] for row in prices} == {"leader-stop", "restart", "follower-stop"}
    for row in prices:
        section = sections_of(page)[str(row["cluster_id"])]
        if not row["without"]:
            assert "If a leader had died" not in section
            continue
        off, on, alone = (
            f"{row[name]:,.3f} partition-seconds" if row[name] else "never" for name in ("without", "with_elr", "alone")
        )
        of_leader = f" (leader alone: {alone})" if alone != off else ""
        assert f"offline for {off}{of_leader}." in section
        assert f"With them: {on}; this cluster has them." in section
    assert "If a leader had died" not in sections_of(page)["quiet"]


def test_the_replay_is_compared_as_validate_does(page: str, sample_lake: Lake) -> None:
    sections = sections_of(page)
    rows = summary(sample_lake).rows
    for row in rows:
        cells = [row[name] for name in MATCH_COLUMNS]
        shown = "".join(
            f'<td class="n">{cell}</td>' if isinstance(cell, int) else f"<td>{'' if cell is None else cell}</td>"
            for cell in cells
        )
        assert f"<tr>{shown}</tr>" in sections[row["cluster_id"]]
    for name, section in sections.items():
        of = [row for row in rows if row["cluster_id"] == name]
        matched = sum(row["matched"] for row in of)
        changes = matched + sum(row["missing"] + row["extra"] for row in of)
        assert (f"<small>{matched} of {changes} changes</small>" in section) == bool(changes)


def test_the_table_of_rules_has_the_scores_of_the_cluster(page: str, sample_lake: Lake) -> None:
    names = ("shrinks", "spurious", "early", "genuine", "excluded", "unknown", "misses")
    scores = sample_lake.read("rule_scores").where("event_date IS NULL AND topic IS NULL").collect()
    for name, section in sections_of(page).items():
        table = section.partition("All rules on this cluster")[2].partition("</table>")[0]
        cells = re.findall(r"<tr>" + r"<td[^>]*>([^<]*)</td>" * 9, table)
        shown = {rule: list(map(int, counts)) for rules, _, *counts in cells for rule in rules.split(", ")}
        assert shown == {row["rule"]: [row[n] for n in names] for row in scores if row["cluster_id"] == name}


def test_pictures_have_the_numbers_of_the_tables(page: str, sample_lake: Lake) -> None:
    charts = charts_of(page)
    verdicts = sample_lake.read("shrink_verdicts")
    key = ("cluster_id", "rule")
    by_cause = {(*(row[n] for n in key), row["cause"]): row["shrinks"] for row in rows_of(charts, "causes")}
    counted = verdicts.groupBy(*key, "primary_cause").count().collect()
    assert by_cause == {tuple(row)[:3]: row["count"] for row in counted}
    logged = sample_lake.read("observed_isr_changes").where("kind = 'shrink'").count()
    in_time = rows_of(charts, "in_time")
    assert sum(row["shrinks"] for row in in_time) == verdicts.count() + logged
    assert sum(row["shrinks"] for row in in_time if row["rule"] == "the brokers") == logged
    differing = sample_lake.read("rule_disagreements").withColumn("a", F.explode("rules_for"))
    pairs = differing.withColumn("b", F.explode("rules_against")).groupBy("cluster_id", "a", "b").count().collect()
    drawn = rows_of(charts, "disagreements")
    assert {
        (row["cluster_id"], makes, makes_not, row["shrinks"])
        for row in drawn for makes in row["makes"].split(", ") for makes_not in row["makes_not"].split(", ")
    } == {tuple(row) for row in pairs}  # fmt: skip
    own = verdicts.where("rule = 'kafka-3.7' AND made_by = 'rule'")
    assert sum(row["shrinks"] for row in rows_of(charts, "held") if "cause" in row) == own.count()
    totals = sample_lake.read("rule_scores").where("event_date IS NULL AND topic IS NULL").collect()
    spurious = {(row["cluster_id"], row["rule"]): row["spurious"] for row in totals}
    assert {tuple(row[n] for n in key): row["mistakes"] for row in rows_of(charts, "costs")} == spurious
    rates = {tuple(row[n] for n in key): row["mistakes_per_partition_day"] for row in totals if row["spurious"]}
    drawn = [row for row in rows_of(charts, "tradeoff") if row["seen"]]
    assert {tuple(row[n] for n in key): row["mistakes"] for row in drawn} == rates
    undone = verdicts.where("verdict = 'spurious' AND restored_time IS NOT NULL").withColumn(
        "s", (F.unix_millis("restored_time") - F.unix_millis("change_time")) / 1000
    )
    longest = undone.groupBy(*key).agg(F.max("s"), F.count("*")).collect()
    lasting = {tuple(row[n] for n in key): row for row in rows_of(charts, "durations") if row["what"] == "it lasts"}
    assert {of: (row["most"], row["mistakes"]) for of, row in lasting.items()} == {
        tuple(row)[:2]: tuple(row)[2:] for row in longest
    }


def lanes_of(lake: Lake, shown: list[ShrinkInQuery]) -> list[dict[str, Any]]:
    with LakeSql(lake) as sql:
        return sql(sql_of_picture("lanes"), shrinks=shown, rules=[("kafka-3.7",)])


def test_swim_lanes_show_the_verdicts(sample_lake: Lake) -> None:
    own = own_shrinks(sample_lake)
    _, shown = choose_shrinks_on_page(own, drops_of_incidents(own))
    drawn = lanes_of(sample_lake, shown)
    verdicts = sample_lake.read("shrink_verdicts").withColumn("us", F.unix_micros("change_time")).collect()
    for one in shown:
        place = (one.cluster_id, one.topic, one.partition_id, one.change_us)
        there = {
            (row["rule"], row["replica_id"], row["verdict"], row["primary_cause"])
            for row in verdicts
            if (row["cluster_id"], row["topic"], row["partition_id"], row["us"]) == place
        }
        of = [row for row in drawn if row["id"] == one.id]
        bars = [row for row in of if row["lane"] == "away" and row["from_us"] == one.change_us]
        made = {(row["line"], row["follower"], row["verdict"], row["cause"]) for row in bars}
        assert {bar for bar in made if bar[0] != "the brokers"} == there
        assert {row["line"] for row in of if row["lane"] == "offset"} > {"leader", "high watermark"}
    assert "broker 1 silent" in {row["line"] for row in drawn if row["lane"] == "trouble"}


def test_a_bar_in_the_lanes_is_when_the_follower_is_out(sample_lake: Lake) -> None:
    """Also where a term begins without it, and where one ends before it is back."""
    (back, *_), _ = answer(
        sample_lake,
        """
        SELECT cluster_id, topic, partition_id, params_json, unix_micros(change_time) AS us
        FROM isr_changes i WHERE rule = 'kafka-3.7' AND kind = 'expand' AND NOT EXISTS (
          SELECT 1 FROM isr_changes s WHERE s.kind = 'shrink' AND s.change_time < i.change_time AND (
            s.cluster_id, s.topic, s.partition_id, s.leader_epoch, s.leader_id, s.rule, s.replica_id
          ) = (i.cluster_id, i.topic, i.partition_id, i.leader_epoch, i.leader_id, i.rule, i.replica_id)
        ) ORDER BY change_time, cluster_id, topic, partition_id
    """,
    )
    cluster, topic, partition, params, us = back.values()
    one = ShrinkInQuery(0, cluster, topic, partition, "kafka-3.7", params, us, 0, us - 10**7, us + 10**7)
    states, _ = answer(
        sample_lake,
        f"""
        SELECT rule, isr, unix_micros(time) AS us FROM partition_timeline
        WHERE cluster_id = '{cluster}' AND topic = '{topic}' AND partition_id = {partition} ORDER BY us
    """,
    )
    drawn = lanes_of(sample_lake, [one])
    bars = [row for row in drawn if row["lane"] == "away" and row["line"] != "the brokers"]
    assert bars
    for bar in bars:
        middle_us = (bar["from_us"] + bar["until_us"]) / 2
        before = [row["isr"] for row in states if row["rule"] == bar["line"] and row["us"] <= middle_us]
        assert bar["follower"] not in before[-1], bar


def test_each_incident_has_its_shrink_on_the_page(page: str, sample_lake: Lake) -> None:
    own = own_shrinks(sample_lake)
    worst, shown = choose_shrinks_on_page(own, drops_of_incidents(own))
    told = re.findall(r'<details id="s-(i[^"]+)"><summary>([^<]+)</summary>', page)
    assert len(told) == len(shown) == len(worst) > 10
    assert len({place for place, _ in told}) == len(told)
    for one in shown:
        assert sum(f"from the ISR of {one.topic}-{one.partition_id} at " in headline for _, headline in told)
    led = set(re.findall(r'<a href="#([^"]+)"><rect', page))
    assert {f"s-{place}" for place, _ in told} <= led
    assert all(f'id="{place}"' in page for place in led)


def test_the_sql_shown_gives_the_rows_drawn(page: str, sample_lake: Lake) -> None:
    shown = dict(re.findall(r'<details id="sql-([\w-]+)">.*?<pre>(.*?)</pre>', page, re.DOTALL))
    charts = charts_of(page)
    assert {place.rpartition("-")[0] for place in charts} | {"sweeps"} == {*shown}
    found, _ = answer(sample_lake, html.unescape(shown["causes"]))
    drawn = [{name: row[name] for name in found[0]} for row in rows_of(charts, "causes")]
    assert sorted(found, key=repr) == sorted(drawn, key=repr)


def test_the_notebook_runs(
    sample_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["explore.py", sample_lake.root, str(tmp_path / "shrinks.html")])
    told = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "explore.py"))
    assert sum(row["spurious"] for row in told["leaders"]) == len(told["woken"]) == 18
    assert "18 of 18 mistakes come after a silence of their leader" in capsys.readouterr().out
    longest = {rule: max(row["lag_until_ms"] for row in told["lags"] if row["rule"] == rule)
               for rule in ("kafka-0.10.2", "kafka-3.7")}  # fmt: skip
    assert longest == {"kafka-0.10.2": 8043, "kafka-3.7": 0}  # from 16:31:01.983 to 16:31:10.026
    assert "vegaEmbed" in (tmp_path / "shrinks.html").read_text(encoding="utf-8")
