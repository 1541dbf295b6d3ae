"""The report of the samples: its numbers are those of the tables, and a browser shows it without a word."""

import html
import json
import re
import runpy
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from docs.generate import chromium
from isr_batch.incidents.own_shrinks import own_shrinks
from isr_batch.lake.lake import Lake
from isr_batch.report.page import MATCH_COLUMNS
from isr_batch.report.pictures import _all_tables, _swim_lane
from isr_batch.scoring.broker_check import summary


def charts_of(page: str) -> dict[str, Any]:
    found = re.search(r"^const charts = (.*);$", page, re.MULTILINE)
    assert found
    return dict(json.loads(found[1]))


def rows_of(chart: dict[str, Any]) -> list[dict[str, Any]]:
    """All rows that are drawn."""
    return [row for rows in chart["datasets"].values() for row in rows]


@pytest.fixture
def page(sample_report: Path) -> str:
    return sample_report.read_text(encoding="utf-8")


def test_it_is_one_file_that_asks_for_nothing(page: str) -> None:
    assert len(page) < 3_000_000
    assert not re.search(r"<(script|link|iframe)[^>]* (src|href)=", page)


def sections_of(page: str) -> dict[str, str]:
    """What the page has of each cluster."""
    sections = re.findall(r'<section class="cluster"[^>]*>\s*<h2>([^<]+)</h2>(.*?)</section>', page, re.DOTALL)
    return {name: html.unescape(text) for name, text in sections}


def test_the_first_screen_has_the_numbers_of_the_tables(page: str, sample_lake: Lake) -> None:
    """By another way than the page's: Spark's joins."""
    sections = sections_of(page)
    clusters = {row[0] for row in sample_lake.read("leader_epochs").select("cluster_id").distinct().collect()}
    assert {*sections} == clusters
    answered, _ = sample_lake.query("""
        SELECT cluster_id, verdict, CAST(count(*) AS INT) AS n FROM replay_check c
        JOIN shrink_verdicts v
        USING (cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id, rule, params_json)
        WHERE c.kind = 'shrink' AND v.change_time = c.replayed_time AND c.observed_time IS NOT NULL
        GROUP BY ALL
    """)
    judged = Counter({(row["cluster_id"], row["verdict"]): row["n"] for row in answered})
    logged = sample_lake.read("observed_isr_changes").where("kind = 'shrink' AND made_by = 'leader'")
    for row in logged.groupBy("cluster_id").count().collect():
        spurious = judged[row[0], "spurious"] or "none"
        said = f"Of {row['count']} followers that your brokers dropped, {spurious} w"
        assert said in sections[row[0]]
    assert "Of 86 followers that your brokers dropped, 16 were healthy: broker 1 was silent" in sections["leader-stop"]
    assert "Your brokers dropped no follower. " not in sections["leader-stop"]
    assert "<b>Your brokers dropped no follower.</b>" in sections["restart"]
    for name, section in sections.items():
        matrix = re.search(r'<table class="matrix">.*?</table>', section, re.DOTALL)
        drawn = re.findall(r'<b class="v-(\w+)"[^>]*>(\d+)</b>', matrix[0]) if matrix else []
        for verdict in ("spurious", "genuine"):
            assert sum(int(number) for kind, number in drawn if kind == verdict) == judged[name, verdict]


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
        assert (f"agrees with the brokers on {matched} of {changes} changes." in section) == bool(changes)


def test_the_table_of_rules_has_the_scores_of_the_cluster(page: str, sample_lake: Lake) -> None:
    names = ("shrinks", "spurious", "genuine", "excluded", "unknown", "misses")
    scores = sample_lake.read("rule_scores").where("event_date IS NULL AND topic IS NULL").collect()
    for name, section in sections_of(page).items():
        table = section.partition("All rules on this cluster")[2].partition("</table>")[0]
        cells = re.findall(r"<tr>" + r"<td[^>]*>([^<]*)</td>" * 8, table)
        shown = {rule: list(map(int, counts)) for rule, _, *counts in cells}
        assert shown == {row["rule"]: [row[n] for n in names] for row in scores if row["cluster_id"] == name}


def test_what_would_have_avoided_it_begins_with_the_brokers_own(page: str, sample_lake: Lake) -> None:
    section = sections_of(page)["leader-stop"]
    table = section.partition("What would have avoided it")[2].partition("</table>")[0]
    rows = re.findall(r"<tr>" + r"<td[^>]*>([^<]*)</td>" * 4, table)
    assert 2 <= len(rows) <= 5
    assert rows[0][0].startswith("your brokers' own: kafka-3.7")
    scores = {
        row["rule"]: row
        for row in sample_lake.read("rule_scores").where("event_date IS NULL AND topic IS NULL").collect()
        if row["cluster_id"] == "leader-stop"
    }
    for said, lag_time, spurious, misses in rows:
        rule = said.removeprefix("your brokers' own: ").split(";")[0].split(",")[0].split(" ")[0]
        assert lag_time == "4 s"
        assert (int(spurious), int(misses)) == (scores[rule]["spurious"], scores[rule]["misses"])


def test_pictures_have_the_numbers_of_the_tables(page: str, sample_lake: Lake) -> None:
    charts = charts_of(page)
    verdicts = sample_lake.read("shrink_verdicts")
    by_cause = {(row["rule"], row["cause"]): row["shrinks"] for row in rows_of(charts["causes"])}
    assert by_cause == {
        (row["rule"], row["primary_cause"]): row["count"]
        for row in verdicts.groupBy("rule", "primary_cause").count().collect()
    }
    logged = sample_lake.read("observed_isr_changes").where("kind = 'shrink'").count()
    in_time = rows_of(charts["in_time"])
    assert sum(row["shrinks"] for row in in_time) == verdicts.count() + logged
    assert sum(row["shrinks"] for row in in_time if row["rule"] == "the brokers") == logged
    differing = sample_lake.read("rule_disagreements").withColumn("a", F.explode("rules_for"))
    pairs = differing.withColumn("b", F.explode("rules_against")).groupBy("a", "b").count().collect()
    assert {(row["makes"], row["makes_not"], row["shrinks"]) for row in rows_of(charts["disagreements"])} == {
        tuple(row) for row in pairs
    }
    own = verdicts.where("rule = 'kafka-3.7' AND made_by = 'rule'")
    assert sum(row["shrinks"] for row in rows_of(charts["held"]) if "cause" in row) == own.count()
    totals = sample_lake.read("rule_scores").where("event_date IS NULL AND topic IS NULL")
    spurious = {row[0]: row[1] for row in totals.groupBy("rule").agg(F.sum("spurious")).collect()}
    drawn = rows_of(charts["costs"])
    assert {rule: row["mistakes"] for row in drawn for rule in row["rules"].split(", ")} == spurious
    rates = {
        (row["cluster_id"], row["rule"]): row["mistakes_per_partition_day"]
        for row in totals.where("spurious > 0").collect()
    }
    drawn = [row for row in rows_of(charts["tradeoff"]) if row["seen"]]
    assert {(row["cluster_id"], rule): row["mistakes"] for row in drawn for rule in row["rules"].split(", ")} == rates
    undone = verdicts.where("verdict = 'spurious' AND restored_time IS NOT NULL").withColumn(
        "s", (F.unix_millis("restored_time") - F.unix_millis("change_time")) / 1000
    )
    longest = undone.groupBy("rule").agg(F.max("s"), F.count("*")).collect()
    lasting = {row["rule"]: row for row in rows_of(charts["durations"]) if row["what"] == "it lasts"}
    assert {rule: row["mistakes"] for rule, row in lasting.items()} == {row[0]: row[2] for row in longest}
    for rule, most, _ in longest:
        assert lasting[rule]["most"] == pytest.approx(most, abs=0.0011)


def test_a_follower_that_stopped_is_seen_in_the_heat_map(page: str, sample_lake: Lake) -> None:
    """What the timeline has just before a follower is back, its last state, counts until then."""
    drawn = [row for row in rows_of(charts_of(page)["heat"]) if row["cluster_id"] == "follower-stop"]
    oldest = max(drawn, key=lambda row: row["age_s"])
    dropped = sample_lake.read("replica_timeline").where("cluster_id = 'follower-stop' AND rule = 'kafka-3.7'")
    assert oldest["follower"].startswith("broker 3 of leader ")
    assert oldest["age_s"] >= dropped.agg(F.max("lag_ms")).collect()[0][0] / 1000
    assert oldest["age_s"] < 30


def test_swim_lanes_show_the_verdicts(page: str, sample_lake: Lake) -> None:
    drawn = rows_of(charts_of(page)["lanes-0"])
    (change_ms,) = {row["at_ms"] for row in drawn if "at_ms" in row}
    bars = {(row["line"], row["cause"]) for row in drawn if row.get("from_ms") == change_ms and "cause" in row}
    there = sample_lake.read("shrink_verdicts").where(
        (F.unix_micros("change_time") == round(change_ms * 1000))
        & (F.col("topic") == "busy")
        & (F.col("partition_id") == 0)
    )
    assert bars - {("the brokers", "as logged")} == {(row["rule"], row["primary_cause"]) for row in there.collect()}
    assert {row["line"] for row in drawn if "value" in row} >= {"leader", "high watermark", "broker 2", "broker 3"}
    assert ("broker 1 silent", "silent") in {(row.get("line"), row.get("cause")) for row in drawn}


def test_a_bar_in_the_lanes_is_when_the_follower_is_out(sample_lake: Lake) -> None:
    """Also where a term begins without it, and where one ends before it is back."""
    sample_lake.register_views()
    (back, *_) = sample_lake.spark.sql("""
        SELECT cluster_id, topic, partition_id, leader_id, params_json, 4000 AS lag_time_ms,
          unix_micros(change_time) AS change_us, unix_micros(change_time) - 8000000 AS caught_up_us,
          unix_micros(change_time) + 8000000 AS restored_us, 0 AS shrinks, 0 AS spurious, '' AS primary_cause
        FROM isr_changes i WHERE rule = 'kafka-3.7' AND kind = 'expand' AND NOT EXISTS (
          SELECT 1 FROM isr_changes s WHERE s.kind = 'shrink' AND s.change_time < i.change_time AND (
            s.cluster_id, s.topic, s.partition_id, s.leader_epoch, s.leader_id, s.rule, s.replica_id
          ) = (i.cluster_id, i.topic, i.partition_id, i.leader_epoch, i.leader_id, i.rule, i.replica_id)
        ) ORDER BY change_time, cluster_id, topic, partition_id
    """).collect()
    with _all_tables(sample_lake):
        drawn = sample_lake.spark.sql(_swim_lane(0, "kafka-3.7", [], back.asDict()).sql).collect()
    states = sample_lake.read("partition_timeline").where(
        (F.col("topic") == back["topic"]) & (F.col("partition_id") == back["partition_id"])
        & (F.col("cluster_id") == back["cluster_id"])
    ).select("rule", "isr", F.unix_micros("time").alias("us")).orderBy("us").collect()  # fmt: skip
    bars = [row for row in drawn if row["lane"] == "away" and row["line"] != "the brokers"]
    assert bars
    for bar in bars:
        middle_us = 500 * (bar["from_ms"] + bar["until_ms"])
        before = [row["isr"] for row in states if row["rule"] == bar["line"] and row["us"] <= middle_us]
        assert bar["follower"] not in before[-1], bar


def test_a_lag_grows_until_the_follower_has_caught_up(page: str, sample_lake: Lake) -> None:
    """A row of the timeline that tells of that fetch has a lag of zero, and between two rows nothing is told."""
    chart = charts_of(page)["lanes-0"]
    layers = [layer for lane in chart["vconcat"] for layer in lane["layer"]]
    (lag,) = (layer for layer in layers if layer["encoding"].get("y", {}).get("title") == "lag, s")
    peak = max(chart["datasets"][lag["data"]["name"]], key=lambda row: row["value"])
    rows = sample_lake.read("replica_timeline").where(
        (F.col("topic") == "busy") & (F.col("partition_id") == 0) & (F.col("rule") == "kafka-3.7")
        & (F.col("replica_id") == int(peak["line"].removeprefix("broker ")))
    ).orderBy("cluster_id", "leader_epoch", "time").select(
        "leader_epoch", F.unix_millis("time").alias("ms"), "lag_ms", "last_caught_up_time_ms"
    ).collect()  # fmt: skip
    peak_ms = int(peak["from_ms"])
    grown = {row["ms"]: row["ms"] - before["last_caught_up_time_ms"] for before, row in pairwise(rows)}
    (told,) = {row["lag_ms"] for row in rows if row["ms"] == peak_ms}
    assert told < peak["value"] * 1000 == grown[peak_ms]


def test_the_sql_that_is_shown_gives_what_is_drawn(page: str, sample_lake: Lake) -> None:
    shown = {
        place: html.unescape(sql)
        for place, sql in re.findall(
            r'<details class="picture" id="picture-([\w-]+)">.*?<pre>(.*?)</pre>', page, re.DOTALL
        )
    }
    charts = charts_of(page)
    assert {*charts, "sweeps"} == {*shown}
    for place in ("causes", "disagreements", "costs"):
        found, _ = sample_lake.query(shown[place])
        assert rows_of(charts[place]) == found


def test_a_picture_of_a_missing_table_says_so(page: str, sample_lake: Lake) -> None:
    assert not sample_lake.has("sweep_scores")
    assert "There is no sweep in this lake: <code>isr-batch sweep</code> makes one." in page


def test_the_notebook_runs(
    sample_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["explore.py", sample_lake.root, str(tmp_path / "shrinks.html")])
    told = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "explore.py"))
    assert sum(row["spurious"] for row in told["leaders"]) == len(told["woken"]) == 16
    assert "16 of 16 mistakes come after a silence of their leader" in capsys.readouterr().out
    assert "vegaEmbed" in (tmp_path / "shrinks.html").read_text(encoding="utf-8")


@pytest.mark.browser
@pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no Chromium here")
def test_a_browser_shows_it(sample_report: Path, tmp_path: Path) -> None:
    def ink() -> str:
        return str(tab.value("getComputedStyle(document.querySelector('#causes svg text')).fill"))

    with chromium.open_page(sample_report, tmp_path / "profile") as tab:
        tab.size(1280, 900)
        tab.media("screen", "light")
        # All of the first screen is there before a chart is drawn, and nothing is wider than the window.
        assert tab.value("document.querySelectorAll('svg.timeline').length") == tab.value(
            "document.querySelectorAll('section.cluster').length"
        )
        assert tab.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert tab.value("document.querySelectorAll('.chart svg').length") == 0
        tab.value("document.querySelectorAll('details').forEach(e => { e.open = true; })")
        tab.wait_for("[...document.querySelectorAll('.chart')].every(e => e.querySelector('svg .mark-text'))")
        places = tab.value("Object.keys(charts)")
        assert len(places) >= 10
        assert ink() == "rgb(26, 26, 26)"
        tab.screenshot(tmp_path / "light.png")
        tab.media("screen", "dark")
        assert ink() == "rgb(228, 228, 228)"
        tab.screenshot(tmp_path / "dark.png")
        tab.media("print", "dark")
        assert ink() == "rgb(0, 0, 0)"
        tab.screenshot(tmp_path / "print.png")
        tab.media("screen", "light")
        wide = "[...document.querySelectorAll('.chart')].filter(e => e.scrollWidth > e.clientWidth + 1)"
        assert tab.value(f"{wide}.map(e => e.id).join()") == ""
        # The wheel zooms the lanes: other times stand below them.
        texts = "[...document.querySelectorAll('#lanes-0 svg text')].map(e => e.textContent)"
        times = f"{texts}.filter(t => /:/.test(t)).join()"
        before = tab.value(times)
        tab.value("document.querySelector('#lanes-0').scrollIntoView()")
        for _ in range(4):
            tab.call("Input.dispatchMouseEvent", type="mouseWheel", x=450, y=70, deltaX=0, deltaY=-240)
        tab.wait_for(f"{times} !== {json.dumps(before)}")
        assert tab.complaints() == []
        assert tab.requests() == [sample_report.resolve().as_uri()]
    assert all((tmp_path / f"{name}.png").stat().st_size > 50_000 for name in ("light", "dark", "print"))


STOPS = {
    "leader-stop": (1795278618, {(28, 33, 1), (44, 52, 2), (64, 76, 3), (90, 96, 1), (108, 113, 2), (125, 145, 2),
                                 (172, 178, 3)}),
    "follower-stop": (1795278400, {(32, 47, 3), (82, 97, 3), (138, 149, 3), (165, 187, 3)}),
    "restart": (1795279737, {(15, 27, 2), (62, 82, 3), (115, 122, 1), (155, 167, 2), (190, 192, 1)}),
}  # fmt: skip
"""What was done to the recorded brokers: a second of 1970, then from when, until when, to whom. Stops shorter than a
lag time made no leader drop anybody."""


def test_each_fault_of_the_recordings_is_one_incident_that_names_its_broker(sample_lake: Lake) -> None:
    own = own_shrinks(sample_lake)
    for cluster, (begin_s, faults) in STOPS.items():
        found = [
            (one["fault_id"], one["since_us"] / 1e6 - begin_s, one["last_us"] / 1e6 - begin_s)
            for one in own.incidents if one["cluster_id"] == cluster
        ]  # fmt: skip
        assert len(found) == len(faults), cluster
        for from_s, until_s, broker in faults:
            assert any(
                named == broker and from_s - 1 <= since and last <= until_s + 1 for named, since, last in found
            ), (cluster, from_s, found)
    assert not [one for one in own.incidents if one["cluster_id"] == "quiet"]
