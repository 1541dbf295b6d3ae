"""The page that compares two rules has the numbers of the tables."""

from typing import Any

import pyarrow as pa
import pytest

from isr_batch import __version__
from isr_batch.errors import UsageError
from isr_batch.lake.lake import Lake
from isr_batch.report.kip_figures import STORY, stories_by_outcome
from isr_batch.report.kip_page import kip_page, rule_said
from isr_batch.report.markdown_table import markdown_table
from isr_batch.scoring.broker_pairs import sums_of_broker_pairs


def test_a_table_in_markdown() -> None:
    rows: list[dict[str, Any]] = [{"a": 1234, "b": None}, {"a": 0.12345, "b": "x"}, {"a": 12345.6, "b": 0}]
    assert markdown_table(("a", "b"), rows) == [
        "| a | b |", "| --- | --- |", "| 1,234 | - |", "| 0.1235 | x |", "| 12,346 | 0 |",
    ]  # fmt: skip


def test_the_figures_are_those_of_the_scores(sample_lake: Lake) -> None:
    page = kip_page([sample_lake], "kafka-3.7", "kip-501-pending")
    lines = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in page.splitlines()}
    assert all(name.startswith("kafka-3.7, ") for name in lines["figure"][::2])
    for column, title in (("spurious", "mistakes: spurious shrinks (by blame)"), ("misses", "misses")):
        found, _ = sample_lake.query(f"""
            SELECT rule, sum({column}) AS n FROM rule_scores WHERE event_date IS NULL AND topic IS NULL
              AND rule IN ('kafka-3.7', 'kip-501-pending') GROUP BY rule
        """)
        expected = {row["rule"]: row["n"] for row in found}
        (cells,) = (of for name, of in lines.items() if name.startswith(title))
        shown = dict.fromkeys(expected, 0)
        for name, cell in zip(lines["figure"], cells, strict=True):
            shown[name.split(",")[0]] += int(cell.replace(",", ""))
        assert shown == expected
    assert "## Where they differ" in page
    for cluster in ("quiet", "follower-stop", "leader-stop", "restart"):
        assert f"- recorded cluster `{cluster}`: Kafka 4.1.0, T = " in page
    assert f"Made by isr-batch {__version__}: `kip`." in page
    for word in ("*miss*", "*below the log end*", "*Unavailable*", "*Detection*"):
        assert page.index(word) < page.index("| figure |")
    checks, _ = sample_lake.query("""
        SELECT count(*) AS n, count(DISTINCT cluster_id, leader_id) AS leaders FROM (
          SELECT cluster_id, leader_id, change_time, lag(change_time)
            OVER (PARTITION BY cluster_id, leader_id ORDER BY change_time) AS before
          FROM shrink_verdicts WHERE rule = 'kafka-3.7' AND verdict = 'spurious'
        ) WHERE before IS NULL OR change_time > before + INTERVAL 1 SECOND
    """)
    assert (
        f"`kafka-3.7` made its mistakes at {checks[0]['n']} checks of {checks[0]['leaders']} leaders. The"
        in " ".join(page.split())
    )
    found, _ = sample_lake.query("""
        SELECT count_if(status = 'matched') AS both, count_if(status IN ('matched', 'missing')) AS logged
        FROM replay_check
    """)
    assert f"makes {found[0]['both']} of the {found[0]['logged']} ISR changes that they logged" in page
    assert "`kip-501-pending.caught_up_at=completed`" in page
    for rule in ("kafka-3.7", "kip-501-pending"):
        found, _ = sample_lake.query(f"""
            SELECT sum(under_min_isr_seconds + acks_all_waits_1s_seconds) AS s FROM rule_scores
            WHERE event_date IS NULL AND topic IS NULL AND rule = '{rule}'
        """)
        unavailable = lines["unavailable: seconds in which acks=all is refused or waits over 1 s"]
        of_runs = zip(lines["figure"], unavailable, strict=True)
        shown_s = sum(float(s.replace(",", "")) for name, s in of_runs if name.startswith(f"{rule},"))
        assert shown_s == pytest.approx(found[0]["s"], rel=1e-3)


def test_the_page_says_which_releases_decide_as_the_measured_parameters() -> None:
    """With its defaults, kafka-3.3 is the rule of 3.3.0 to 3.5.2, not that of all its releases."""
    said = rule_said("kafka-3.3", {"only_eligible_hold_high_watermark": "false"})
    assert "; here `only_eligible_hold_high_watermark` = false (true: 3.6.0 to 3.6.2)). New in it: only" in said
    assert rule_said("kip-501-pending", {}).startswith("(in no release of Kafka; KIP-501, solution 1): as in Kafka 3.7")


def test_only_stories_with_a_difference_are_shown() -> None:
    same = dict.fromkeys(STORY, 1)
    rows = [
        same | {"scenario": scenario, "rule": rule, "seed": seed, "shrinks": shrinks}
        for scenario, rule, seed, shrinks in (
            ("a", "old", 1, 3), ("a", "old", 2, 4), ("a", "new", 1, 3), ("a", "new", 2, 4),
            ("b", "old", 1, 3), ("b", "new", 1, 2), ("c", "old", 1, 3),
        )
    ]  # fmt: skip
    assert stories_by_outcome(rows) == (["a"], rows[4:])


def test_detection_is_given_for_each_lag_time(sample_lake: Lake) -> None:
    """Over all lag times together, kip-501-pending seemed to detect sooner because it drops less at the longest one."""
    page = kip_page([sample_lake], "kafka-3.7", "kip-501-pending")
    found, _ = sample_lake.query("""
        SELECT lag_time_ms(params_json) / 1000 AS t, rule, avg(true_lag_ms) / 1000 AS seconds FROM shrink_verdicts
        WHERE verdict = 'genuine' AND rule IN ('kafka-3.7', 'kip-501-pending') GROUP BY t, rule ORDER BY t, rule
    """)
    shown = [line.split(" | ") for line in page.splitlines() if line.startswith("| detection, s, mean")]
    assert [line[0] for line in shown] == [
        f"| detection, s, mean, T = {t:g} s" for t in sorted({float(str(r["t"])) for r in found})
    ]
    means = [float(cell.split(" ")[0]) for line in shown for cell in line[1:3]]
    assert means == pytest.approx([row["seconds"] for row in found], rel=1e-3)


def test_two_replays_with_one_lag_time_are_refused(monkeypatch: pytest.MonkeyPatch, sample_lake: Lake) -> None:
    pairs = sums_of_broker_pairs(sample_lake)
    monkeypatch.setattr("isr_batch.report.kip_page.sums_of_broker_pairs", lambda _: pa.concat_tables([pairs, pairs]))
    with pytest.raises(UsageError, match="two replays of"):
        kip_page([sample_lake], "kafka-3.7", "kip-501-pending")
