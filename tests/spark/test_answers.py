"""Answers held to the truth: to the faults of a recording, and to the tables that they are made from.

``tests/golden/network`` is a cluster of release 4.2.1 with a lag time of 4 s, whose networks failed: leaders out of
reach, lossy and slow, a lossy follower, a link, a broker cut off both ways; and one leader stopped.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from isr_batch.evidence.answer import evidence_answer
from isr_batch.evidence.evidence_table import read_evidence_table
from isr_batch.incidents.better_rule import better_rule
from isr_batch.incidents.incident_story import incident_story
from isr_batch.incidents.own_shrinks import OwnShrinks, own_shrinks
from isr_batch.incidents.rule_choices import read_scores_for_choices
from isr_batch.incidents.sentences import cluster_headline, incident_time
from isr_batch.ingest.broker_logs import ingest_broker_logs
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.lake import Lake
from isr_batch.replay.replay import replay, rule_runs
from isr_batch.scoring.broker_check import validate
from isr_batch.scoring.eligible_leaders import write_eligible_leaders
from isr_batch.scoring.scores import write_scores
from isr_batch.settings import ReplaySettings
from tests.recorded_faults import (
    RecordedFault,
    count_answers,
    drops_of_leaders,
    faults_of_drop,
    recorded_faults,
)
from tests.said_in_answers import contradictions, said_in

GOLDEN: Final = Path(__file__).parents[1] / "golden"
NETWORK: Final = GOLDEN / "network"
Row = dict[str, Any]


@pytest.fixture(scope="session")
def network_lake(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark_session, str(tmp_path_factory.mktemp("network")), "test")
    ingest_broker_logs(lake, NETWORK, "network")
    replay(lake, rule_runs(ReplaySettings(rules=["kafka-3.7", "kip-501-pending"])))
    write_eligible_leaders(lake, "auto")
    write_scores(lake)
    validate(lake)
    return lake


def test_every_drop_points_at_the_broker_at_fault(network_lake: Lake) -> None:
    faults = recorded_faults(NETWORK / "timeline.jsonl")
    assert len(faults) == 9
    own = own_shrinks(network_lake)
    assert count_answers(faults, own.drops.to_pylist()) == {"right": 61}
    # The evidence of server.log alone about the same drops has the same limits.
    by_lines = [
        row | {"change_us": int(row["change_time"].timestamp() * 1e6), "fault_id": row["suspect_broker"]}
        for row in read_evidence_table(network_lake, "network").to_pylist()
    ]
    assert count_answers(faults, by_lines) == {"right": 61}
    said = cluster_headline(own, own.clusters[0])[1]
    for broker, times in ((1, "06:36:45 and 06:39:06"), (2, "06:36:17"), (3, "06:38:34 and 06:40:05")):
        assert f"broker {broker} could not be reached at {times} (" in said
    assert "broker 1 did not get through to broker 3 at 06:38:01 (" in said
    assert "stopped or slow: broker 3 at 06:37:26 (" in said


def faults_of(cluster_id: str) -> list[RecordedFault]:
    timeline = NETWORK / "timeline.jsonl" if cluster_id == "network" else GOLDEN / "faults" / f"{cluster_id}.jsonl"
    return recorded_faults(timeline) if timeline.exists() else []


@pytest.mark.parametrize(
    ("name", "drops"),
    [("sample_lake", {"follower-stop": 58, "leader-stop": 86}), ("network_lake", {"network": 61})],
)
def test_two_sentences_lead_to_broker_and_time_and_nothing_contradicts_them(
    name: str, drops: dict[str, int], request: pytest.FixtureRequest
) -> None:
    lake: Lake = request.getfixturevalue(name)
    own, found = own_shrinks(lake), drops_of_leaders(lake)
    assert {cluster: len(rows) for cluster, rows in found.items()} == drops
    for cluster in own.clusters:
        name = cluster["cluster_id"]
        faults, mine = faults_of(name), found.get(name, [])
        sentences = cluster_headline(own, cluster)
        said = said_in(sentences[:2])
        assert count_answers(faults, mine) == Counter(right=len(mine))
        for drop in mine:
            assert any(one.fits(fault) for fault in faults_of_drop(faults, drop) for one in said), (drop, sentences)
        stories = [f"{incident_time(one)}: {incident_story(one)}" for one in own.incidents if one["cluster_id"] == name]
        assert contradictions(said_in([*sentences, *stories])) == []
        # Nor do the lines of server.log, which the report lists.
        strong = {
            (row["topic"], row["partition_id"], row["replica_id"], int(row["change_time"].timestamp() * 1e6)): row
            for row in read_evidence_table(lake, name).to_pylist() if row["strength"] == "strong"
        }  # fmt: skip
        for drop in mine:
            row = strong.get((drop["topic"], drop["partition_id"], drop["replica_id"], drop["change_us"]))
            assert row is None or row["suspect_broker"] == drop["fault_id"], row


class Facts:
    """Contents of a lake's tables about one cluster, by other queries than those of the sentences."""

    def __init__(self, own: OwnShrinks, scores: list[Row], cluster: Row) -> None:
        self._own, self._scores, self._name = own, scores, cluster["cluster_id"]
        self._left = f"observed_isr_changes WHERE cluster_id = '{self._name}' AND kind = 'shrink'"

    def count(self, text: str) -> int:
        with ArrowSql() as sql:
            return int(sql(f"SELECT count(*) AS n FROM {text}", **self._own.tables)["n"][0].as_py())

    def dropped(self) -> int:
        return self.count(
            f"observed_isr_changes WHERE cluster_id = '{self._name}' AND kind = 'shrink' AND made_by = 'leader'"
        )

    def judged(self, verdict: str) -> int:
        """Drops that the brokers logged and the replay judges so."""
        return self.count(
            f"observed_isr_changes AS o SEMI JOIN (SELECT c.* FROM replay_check AS c JOIN shrink_verdicts AS v "
            "USING (cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id, rule, params_json) "
            f"WHERE c.kind = 'shrink' AND c.replayed_time = v.change_time AND v.verdict = '{verdict}') AS c "
            "ON c.observed_time = o.change_time AND (c.cluster_id, c.topic, c.partition_id, c.replica_id) = "
            "(o.cluster_id, o.topic, o.partition_id, o.replica_id) "
            f"WHERE o.cluster_id = '{self._name}' AND o.kind = 'shrink' AND o.made_by = 'leader'"
        )

    def by_controller(self, broker: int | None = None) -> int:
        whom = f"AND replica_id = {broker}" if broker is not None else ""
        return self.count(f"{self._left} AND made_by = 'controller' {whom}")

    def compared(self, *statuses: str) -> int:
        there = ", ".join(f"'{status}'" for status in statuses)
        return self.count(f"replay_check WHERE cluster_id = '{self._name}' AND status IN ({there})")

    def silences_ms(self, broker: int) -> list[int]:
        with ArrowSql() as sql:
            text = (
                "SELECT epoch_ms(end_time) - epoch_ms(event_time) AS ms FROM broker_events WHERE kind = 'silent' "
                f"AND cluster_id = '{self._name}' AND broker_id = {broker}"
            )
            return sql(text, **self._own.tables)["ms"].to_pylist()  # type: ignore[no-any-return]

    def spurious_by_rule(self, rule: str) -> int:
        return sum(row["spurious"] for row in self._scores if (row["cluster_id"], row["rule"]) == (self._name, rule))

    def brokers(self) -> set[int]:
        terms = self._own.tables["leader_epochs"].to_pylist()
        return {
            each for row in terms if row["cluster_id"] == self._name for each in (row["leader_id"], *row["assigned"])
        }

    def seconds(self) -> set[str]:
        """All seconds of the day in which the tables have something happen to a replica or a broker."""
        found: set[str] = set()
        for name, columns in (
            ("observed_isr_changes", ("change_time",)), ("shrink_evidence", ("change_time",)),
            ("broker_events", ("event_time", "end_time")),
            ("coverage", ("from_time", "until_time")), ("controller_records", ("record_time",)),
            ("broker_troubles", ("from_time", "until_time")),
        ):  # fmt: skip
            for row in self._own.tables[name].to_pylist():
                found |= {f"{row[column]:%H:%M:%S}" for column in columns if row["cluster_id"] == self._name}
        for row in self._own.tables["shrink_verdicts"].to_pylist():
            if row["cluster_id"] == self._name and row["lag_ms"] is not None:
                ms = int(row["change_time"].replace(tzinfo=UTC).timestamp() * 1000) - row["lag_ms"]
                found |= {f"{datetime.fromtimestamp((ms + off) / 1000, UTC):%H:%M:%S}" for off in (-1, 0, 1)}
        return found


def number(text: str) -> int:
    return {"none": 0, "no": 0}.get(text) if text in ("none", "no") else int(text.replace(",", ""))  # type: ignore[return-value]


Check = Callable[[Facts, re.Match[str]], Iterator[bool]]


def _healthy(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    yield number(found[1]) == facts.dropped()
    yield number(found[2]) == facts.judged("spurious")


def _genuine(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    yield number(found[1]) == facts.judged("genuine")
    drops = [int(each) for each in re.findall(r"\((\d+)(?: drops? of|[,;)])", found[2])]
    yield sum(drops) == facts.judged("genuine")


def _controller(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    yield number(found[1]) == facts.by_controller()
    for part in found[2].split("; "):
        drops = [int(each) for each in re.findall(r"\((\d+)", part)]
        yield sum(drops) == facts.by_controller(int(part.split()[1]))


def _agrees(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    yield number(found[1]) == facts.compared("matched")
    yield number(found[2]) == facts.compared("matched", "missing", "extra")


def _unjudged(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    yield number(found[1]) == facts.dropped() - facts.judged("spurious") - facts.judged("genuine")


def _kept(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    kept, dropped = (number(text) if text else None for text in found.groups()[1:3])
    rules = [each for each in re.split(r", | or ", found[1]) if not each.endswith(" others")]
    for rule in rules:
        left = facts.spurious_by_rule(rule.split()[0])
        yield left == (dropped or 0) - (dropped if kept is None else kept)  # type: ignore[operator]
    yield dropped == facts.judged("spurious")


def _replayed(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    for rule in (each for each in re.split(r", | or ", found[1]) if not each.endswith(" others")):
        yield facts.spurious_by_rule(rule.split()[0]) == number(found[2])
    yield facts.spurious_by_rule(found[3]) == number(found[4])


def _min_isr(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    for topic, value in re.findall(r"([\w.-]+) to (\d+) at", found[0]):
        yield facts.count(f"controller_records WHERE kind = 'min_isr' AND topic = '{topic}' AND value = {value}") > 0


def _nothing(_facts: Facts, _found: re.Match[str]) -> Iterator[bool]:
    yield True


SILENT: Final = r"[Bb]roker (\d+) was silent for ([\d.]+)(?: to ([\d.]+))? s\b"
NO_RELEASE: Final = r"(?: \(in no release of Kafka\))?"
KINDS: Final[dict[str, Check]] = {
    r"Of ([\d,]+) followers? that your brokers dropped, (none|[\d,]+) (?:was|were) healthy(?:: .*)?\.": _healthy,
    r"([\d,]+) (?:was|were) really (?:stopped or )?behind: (.*)\.": _genuine,
    r"([\d,]+) (?:was|were) removed by the controller: (.*)\.": _controller,
    r"The replay agrees with the brokers on ([\d,]+) of ([\d,]+) changes\.": _agrees,
    r"([\d,]+) cannot be judged.*\.": _unjudged,
    rf"(.*?){NO_RELEASE} would have kept (?:the |all |([\d,]+) of )?([\d,]+) healthy followers?: .*\.": _kept,
    rf"(.*?){NO_RELEASE} drops (no|[\d,]+) healthy followers? in the replay, in which your rule, ([\w.-]+), drops "
    r"([\d,]+): .*\.": _replayed,
    r"Your brokers dropped no follower\.": _nothing,
    r"No rule that a broker could run would have kept more of them\.": _nothing,
    r"Rules that would have kept more of them give up leadership more often than that\.": _nothing,
    r"Started in this time: .*\.": _nothing,
    r"min\.insync\.replicas was changed: .*\.": _min_isr,
}
"""Sentences of a headline, and what must hold for their numbers; a new kind of sentence needs a line here."""


@pytest.mark.parametrize("name", ["sample_lake", "network_lake"])
def test_figures_of_an_answer_are_in_the_tables(name: str, request: pytest.FixtureRequest) -> None:
    lake: Lake = request.getfixturevalue(name)
    own, scores = own_shrinks(lake), read_scores_for_choices(lake)
    said_of_kind: set[str] = set()
    for cluster in own.clusters:
        facts = Facts(own, scores, cluster)
        sentences = [*cluster_headline(own, cluster), *better_rule(own, scores, cluster["cluster_id"])]
        for sentence in sentences:
            kinds = [kind for kind in KINDS if re.fullmatch(kind, sentence)]
            assert len(kinds) == 1, sentence
            found = re.fullmatch(kinds[0], sentence)
            assert found
            assert all(KINDS[kinds[0]](facts, found)), sentence
            said_of_kind |= {*kinds}
        stories = [incident_story(one) for one in own.incidents if one["cluster_id"] == cluster["cluster_id"]]
        lines = evidence_answer(read_evidence_table(lake, cluster["cluster_id"]), request_log=True)
        seconds, brokers = facts.seconds(), facts.brokers()
        for text in (*sentences, *stories, *lines):
            for each in re.findall(r"\bbrokers? ((?:\d+(?:, | and )?)+)", text, re.IGNORECASE):
                assert {int(broker) for broker in re.findall(r"\d+", each)} <= brokers, text
            assert set(re.findall(r"\b\d\d:\d\d:\d\d\b", text)) <= seconds, text
            for broker, least, most in re.findall(
                r"[Bb]roker (\d+) was silent for ([\d.]+)(?: to ([\d.]+))? s\b", text
            ):
                shown = {f"{ms / 1000:.3g}" for ms in facts.silences_ms(int(broker))}
                assert {least, most or least} <= shown, text
    assert len(said_of_kind) >= 4
