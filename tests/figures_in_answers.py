"""Check numbers, names and times in an answer's sentences against the tables, by independent queries.

`check_figures` lists the sentences of a lake's answers that the tables do not bear out, those of a new kind, and those
that contradict each other.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from isr_batch.evidence.answer import evidence_answer
from isr_batch.evidence.evidence_table import read_evidence_table
from isr_batch.evidence.notes_of_brokers import notes_of_brokers
from isr_batch.incidents.better_rule import better_rule
from isr_batch.incidents.incident_story import incident_story, incident_time
from isr_batch.incidents.own_shrinks import OwnShrinks, own_shrinks
from isr_batch.incidents.rule_choices import read_scores_for_choices
from isr_batch.incidents.sentences import cluster_headline
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.lake import Lake
from tests.said_in_answers import contradictions, said_in, wrongly_last_seen

Row = dict[str, Any]

_AGO: Final = (
    "epoch_ms({0}) - (SELECT max(replica_lag_time_max_ms) FROM leader_epochs AS t WHERE t.cluster_id = c.cluster_id)"
)
_WAS_SILENT: Final = (
    "(EXISTS (FROM broker_events AS e WHERE e.kind = 'silent' "
    "AND (e.cluster_id, e.broker_id) = (c.cluster_id, c.replica_id) "
    f"AND e.end_time >= {{0}} AND epoch_ms(e.event_time) < {_AGO}) "
    "OR EXISTS (FROM shrink_verdicts AS e WHERE e.primary_cause = 'follower_stopped' AND e.leader_id <> c.leader_id "
    "AND (e.cluster_id, e.replica_id, e.rule) = (c.cluster_id, c.replica_id, c.rule) "
    f"AND (e.change_time >= {{0}} OR e.restored_time >= {{0}}) AND epoch_ms(e.change_time) - e.lag_ms < {_AGO}))"
)
"""SQL: a follower was silent when it was dropped, or stayed away from another leader, for longer than the lag time."""


class Facts:
    """Numbers that sentences may name, counted in a lake's tables for one cluster by queries of the tests' own."""

    def __init__(self, own: OwnShrinks, scores: list[Row], cluster: Row) -> None:
        self._own, self._scores, self._name, self._rule = own, scores, cluster["cluster_id"], cluster["rule"]
        self._left = f"observed_isr_changes WHERE cluster_id = '{self._name}' AND kind = 'shrink'"
        self._replayed = not cluster["logged"]
        # Where server.log does not cover a removal, the answer attributes it; the lines alone do not show by whom.
        of_controller = self.count(f"{self._left} AND made_by <> 'leader'")
        self._attributed = self._replayed or of_controller != self.drops("controller")

    def count(self, text: str) -> int:
        with ArrowSql() as sql:
            tables = {**self._own.tables, "drops": self._own.drops}
            return int(sql(f"SELECT count(*) AS n FROM {text}", **tables)["n"][0].as_py())

    def drops(self, made_by: str, condition: str = "true") -> int:
        """Rows of `OwnShrinks.drops`, which `export csv` writes."""
        maker = "rule" if made_by == "leader" and self._replayed else made_by
        return self.count(f"drops WHERE cluster_id = '{self._name}' AND made_by = '{maker}' AND {condition}")

    def dropped(self) -> int:
        if self._attributed:
            return self.drops("leader")
        return self.count(f"{self._left} AND made_by = 'leader'")

    def judged(self, verdict: str) -> int:
        """Count drops logged by leaders for which the replay gives this verdict.

        A follower that was silent itself for longer than the lag time was not well, whatever the leader caused.
        """
        if self._attributed:
            return self.drops("leader", f"verdict = '{verdict}'")
        rows = self._judged(verdict)
        silent = self._judged(
            "spurious", f"AND v.primary_cause IN ('slow_leader', 'caught_up') AND {_WAS_SILENT.format('v.change_time')}"
        )
        return rows + {"spurious": -silent, "genuine": silent}.get(verdict, 0)

    def healthy_but_silent(self) -> int:
        """Count drops of followers called healthy that stood still themselves for longer than the lag time."""
        silent = _WAS_SILENT.format("make_timestamp(c.change_us)")
        return self.count(f"drops AS c WHERE cluster_id = '{self._name}' AND verdict = 'spurious' AND {silent}")

    def _judged(self, verdict: str, condition: str = "") -> int:
        return self.count(
            f"observed_isr_changes AS o SEMI JOIN (SELECT c.* FROM replay_check AS c JOIN shrink_verdicts AS v "
            "USING (cluster_id, topic, partition_id, leader_epoch, leader_id, replica_id, rule, params_json) "
            f"WHERE c.kind = 'shrink' AND c.replayed_time = v.change_time AND v.verdict = '{verdict}' {condition}"
            ") AS c "
            "ON c.observed_time = o.change_time AND (c.cluster_id, c.topic, c.partition_id, c.replica_id) = "
            "(o.cluster_id, o.topic, o.partition_id, o.replica_id) "
            f"WHERE o.cluster_id = '{self._name}' AND o.kind = 'shrink' AND o.made_by = 'leader'"
        )

    def by_controller(self, broker: int | None = None) -> int:
        whom = f"AND replica_id = {broker}" if broker is not None else ""
        if self._attributed:
            return self.drops("controller", f"true {whom}")
        return self.count(f"{self._left} AND made_by <> 'leader' {whom}")

    def pointed_at(self, broker: int, *, spurious: bool = False) -> int:
        """Count drops without a verdict for which server.log points at this broker as the suspect."""
        looks = "AND e.spurious = 'strong'" if spurious else ""
        return self.count(
            "drops AS d JOIN shrink_evidence AS e ON epoch_us(e.change_time) = d.change_us AND (e.cluster_id, e.topic, "
            "e.partition_id, e.leader_id, e.replica_id) = (d.cluster_id, d.topic, d.partition_id, d.leader_id, "
            f"d.replica_id) WHERE d.cluster_id = '{self._name}' AND d.made_by = 'leader' AND d.verdict = 'unknown' "
            f"AND e.suspect_broker = {broker} {looks}"
        )

    def attributed(self) -> int:
        """Removals without a line of the leader that the drops have as the leader's."""
        return self.count(
            "drops AS d SEMI JOIN (FROM observed_isr_changes WHERE kind = 'shrink' AND made_by <> 'leader') AS o "
            "ON epoch_us(o.change_time) = d.change_us AND (o.cluster_id, o.topic, o.partition_id, o.replica_id) = "
            "(d.cluster_id, d.topic, d.partition_id, d.replica_id) "
            f"WHERE d.cluster_id = '{self._name}' AND d.made_by = 'leader'"
        )

    def without_server_log(self, broker: int) -> bool:
        return not self.count(f"coverage WHERE cluster_id = '{self._name}' AND log = 'server' AND broker_id = {broker}")

    def compared(self, *statuses: str) -> int:
        there = ", ".join(f"'{status}'" for status in statuses)
        return self.count(f"replay_check WHERE cluster_id = '{self._name}' AND status IN ({there})")

    def silences_ms(self, broker: int) -> list[int]:
        with ArrowSql() as sql:
            text = (
                "SELECT (epoch_us(end_time) - epoch_us(event_time)) // 1000 AS ms FROM broker_events "
                f"WHERE kind = 'silent' AND cluster_id = '{self._name}' AND broker_id = {broker}"
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
        """All times of day (hh:mm:ss) at which the tables show something about a replica or a broker."""
        found: set[str] = set()
        for name, columns in (
            ("observed_isr_changes", ("change_time",)), ("shrink_evidence", ("change_time",)),
            ("broker_events", ("event_time", "end_time")), ("leader_epochs", ("start_time", "end_time")),
            ("coverage", ("from_time", "until_time")), ("controller_records", ("record_time",)),
            ("broker_troubles", ("from_time", "until_time")),
        ):  # fmt: skip
            for row in self._own.tables[name].to_pylist():
                found |= {f"{row[column]:%H:%M:%S}" for column in columns if row["cluster_id"] == self._name}
        verdicts = self._own.tables["shrink_verdicts"].to_pylist()
        own = (row for row in verdicts if (row["cluster_id"], row["rule"]) == (self._name, self._rule))
        found |= {f"{row['change_time']:%H:%M:%S}" for row in own}
        for name, ms_of in (
            ("shrink_verdicts", lambda row: _epoch_ms(row["change_time"]) - (row["lag_ms"] or 0)),
            ("observed_isr_changes", lambda row: row["last_caught_up_time_ms"]),
        ):
            mine = (row for row in self._own.tables[name].to_pylist() if row["cluster_id"] == self._name)
            for ms in filter(None, map(ms_of, mine)):
                found |= {f"{datetime.fromtimestamp((ms + off) / 1000, UTC):%H:%M:%S}" for off in (-1, 0, 1)}
        return found


def _epoch_ms(time: datetime) -> int:
    return int(time.replace(tzinfo=UTC).timestamp() * 1000)


def number(text: str) -> int:
    return {"none": 0, "no": 0}.get(text) if text in ("none", "no") else int(text.replace(",", ""))  # type: ignore[return-value]


Check = Callable[[Facts, re.Match[str]], Iterator[bool]]


def _healthy(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    yield number(found[1]) == facts.dropped()
    yield number(found[2]) == facts.judged("spurious")


def _genuine(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    yield number(found[1]) == facts.judged("genuine")
    drops = [int(each) for each in re.findall(r"\((\d+)(?: drops? of|[,;)])", found[2] or "")]
    yield sum(drops) == facts.judged("genuine") - facts.drops("leader", "verdict = 'genuine' AND fault_id IS NULL")


def _no_fault(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    yield number(found[1]) == facts.drops("leader", "verdict IN ('genuine', 'spurious') AND fault_id IS NULL")
    for broker in re.findall(r"\d+", found[2]):
        yield facts.without_server_log(int(broker))


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


def _none_judged(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    yield number(found[1] or "1") == facts.dropped()
    yield facts.judged("spurious") + facts.judged("genuine") == 0


def _perhaps_healthy(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    yield number(found[1]) == facts.dropped() + facts.drops("unknown")
    yield number(found[2] or "none") == facts.judged("spurious")
    yield number(found[3] or "none") in (0, facts.judged("spurious") + facts.judged("genuine"))


def _unknown_makers(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    yield number(found[1]) == facts.drops("unknown")


def _pointed_at(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    if found[1]:
        yield all(_unjudged(facts, found))
    brokers = [(int(part.split()[0]), part) for part in found[2].split("broker ")[1:]]
    for broker, part in brokers:
        yield sum(map(int, re.findall(r"\((\d+)", part))) == facts.pointed_at(broker)
    looks = sum(facts.pointed_at(broker, spurious=True) for broker, _ in brokers)
    yield number(found[3] or "none") == looks


def _unlogged(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    for broker in re.findall(r"\d+", found[1]):
        yield facts.without_server_log(int(broker))


def _gaps(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    if missing := re.search(r"server\.log of (.*) is missing", found[1]):
        yield from _unlogged(facts, missing)
    refused = re.search(r"([\d,]+) files? w", found[1])
    files = facts.count("(SELECT DISTINCT source_file FROM quarantine WHERE source_line IS NULL AND NOT rows_kept)")
    yield files == (number(refused[1]) if refused else 0)


def _attributed(facts: Facts, found: re.Match[str]) -> Iterator[bool]:
    yield number(found[1]) == facts.attributed()
    yield facts.count(f"replay_check WHERE rule = '{found[2]}'") > 0


def _not_compared(facts: Facts, _found: re.Match[str]) -> Iterator[bool]:
    yield facts.compared("matched", "missing", "extra") == 0


def _no_release(facts: Facts, _found: re.Match[str]) -> Iterator[bool]:
    yield facts.count("leader_epochs WHERE broker_version_source = 'logged'") == 0


def _nothing(_facts: Facts, _found: re.Match[str]) -> Iterator[bool]:
    yield True


NO_RELEASE: Final = r"(?: \(in no release of Kafka\))?"
DROPPED: Final = r" that (?:your brokers|[\w.-]+, replayed,) dropped"
KINDS: Final[dict[str, Check]] = {
    rf"Of ([\d,]+) followers?{DROPPED}, (none|[\d,]+) (?:was|were) healthy(?:: .*)?\.": _healthy,
    rf"Of ([\d,]+) followers?{DROPPED}(?: or may have dropped)?, (?:([\d,]+)|none(?: of the (\d+) that can "
    r"be judged)?) (?:was|were) healthy(?:: .*)?\.": _perhaps_healthy,
    rf"(?:None of the (\d+) followers|The follower){DROPPED} can(?:not)? be judged by the replay.*\.": _none_judged,
    r"([\d,]+) replicas? left an ISR at a time for which the leader's server\.log is .*\.": _unknown_makers,
    r"server\.log of (.*) is missing: a removal that the replay makes too is attributed to them\.": _unlogged,
    r"([\d,]+) of these drops (?:was|were) not logged by the leader: the replay of ([\w.-]+) makes .*\.": _attributed,
    r"The replay was not compared with the brokers\.": _not_compared,
    r"No log names the release .*\.": _no_release,
    r"([\d,]+) (?:was|were) really (?:stopped or )?behind(?:: (.*))?\.": _genuine,
    r"Of ([\d,]+) of these drops the broker at fault is not known: server\.log of (.*) (?:is|begins) .*\.": _no_fault,
    r"([\d,]+) (?:was|were) removed by the controller: (.*)\.": _controller,
    r"The replay agrees with the brokers on ([\d,]+) of ([\d,]+) changes\.": _agrees,
    r"([\d,]+) cannot be judged(?:(?!server\.log alone).)*\.": _unjudged,
    r"(?:([\d,]+) cannot be judged.*; )?server\.log alone points at (.*?)(?:; (\d+) looks? spurious)?\.": _pointed_at,
    rf"(.*?){NO_RELEASE} would have kept (?:the |all |([\d,]+) of )?([\d,]+) healthy followers?: .*\.": _kept,
    rf"(.*?){NO_RELEASE} drops (no|[\d,]+) healthy followers? in the replay, in which your rule, ([\w.-]+), drops "
    r"([\d,]+): .*\.": _replayed,
    r"Your brokers dropped no follower\.": _nothing,
    r"In the logs that could be read, .* dropped no follower; (.*)\.": _gaps,
    r"No rule that a broker could run would have kept more of them\.": _nothing,
    r"Rules that would have kept more of them give up leadership more often than that\.": _nothing,
    r"Started in this time: .*\.": _nothing,
    r"min\.insync\.replicas was changed: .*\.": _min_isr,
}
"""Sentences of a headline, and what must hold for their numbers; a new kind of sentence needs a line here."""


def _least_and_most(rows: Sequence[Row], name: str) -> tuple[int | None, int | None]:
    values = [row[name] for row in rows if row[name] is not None]
    return (min(values), max(values)) if values else (None, None)


def _wrong_numbers_of_lines(rows: Sequence[Row], line: str) -> Iterator[bool]:
    """Yield for each number in a line of `evidence_answer` whether it is wrong.

    ``rows`` are the cluster's rows of shrink_evidence without retries.
    """
    mine = [row for row in rows if row["made_by"] == "leader" and row["storm_time"] is not None]
    if found := re.match(r"(\d+) replicas? left the ISR in (\d+) storm", line):
        yield int(found[1]) != len(mine)
        yield int(found[2]) != len({row["storm_time"] for row in mine})
    if found := re.match(
        r"As their leaders saw it .*?(\d+)(?: to (\d+))? records behind; (none|\d+) had nothing", line
    ):
        shown = int(found[1]), int(found[2] or found[1])
        yield shown != _least_and_most(mine, "records_behind")
        yield number(found[3]) != sum(row["records_behind"] == 0 for row in mine)
    if found := re.search(r"last caught up (\d+)(?: to (\d+))? ms before", line):
        yield (int(found[1]), int(found[2] or found[1])) != _least_and_most(mine, "lag_ms")
    if found := re.match(r"Only a replica\.lag\.time\.max\.ms of more than (\d+) ms", line):
        yield int(found[1]) != _least_and_most(mine, "lag_ms")[1]
    if found := re.match(r"Under min ISR: (\d+) shrink", line):
        under = {(row["source_file"], row["source_line"]) for row in rows if row["under_min_isr"]}
        yield int(found[1]) != len(under)
    if found := re.search(r"(\d+) removed by the controller", line):
        yield int(found[1]) != sum(row["made_by"] == "controller" for row in rows)


def names_what_is_there(facts: Facts, seconds: set[str], brokers: set[int], text: str) -> Iterator[bool]:
    """Whether tables have the brokers, the times and the silences of a sentence."""
    without_times = re.sub(r"\d\d:\d\d:\d\d", "", text)
    for each in re.findall(r"\bbrokers? ((?:\d+(?:, | and )?)+)", without_times, re.IGNORECASE):
        yield {int(broker) for broker in re.findall(r"\d+", each)} <= brokers
    yield set(re.findall(r"\b\d\d:\d\d:\d\d\b", text)) <= seconds
    for broker, least, most in re.findall(r"[Bb]roker (\d+) was silent for ([\d.]+)(?: to ([\d.]+))? s\b", text):
        yield {least, most or least} <= {f"{ms / 1000:.3g}" for ms in facts.silences_ms(int(broker))}


class Figures(NamedTuple):
    """Result of a check: sentences that the tables contradict, and the patterns of `KINDS` that occurred."""

    wrong: list[str]
    kinds: set[str]


def check_figures(lake: Lake) -> Figures:
    """Check every sentence of a lake's answers: those about clusters, incidents and server.log."""
    own, scores = own_shrinks(lake), read_scores_for_choices(lake)
    result = Figures([], set())
    for cluster in own.clusters:
        facts, name = Facts(own, scores, cluster), cluster["cluster_id"]
        sentences = [*cluster_headline(own, cluster), *better_rule(own, scores, name)]
        for sentence in sentences:
            kinds = [kind for kind in KINDS if re.fullmatch(kind, sentence)]
            found = re.fullmatch(kinds[0], sentence) if kinds else None
            if not found or not all(KINDS[kinds[0]](facts, found)):
                result.wrong.append(sentence)
            result.kinds.update(kinds[:1])
        stories = [incident_story(one) for one in own.incidents if one["cluster_id"] == name]
        evidence = read_evidence_table(lake, name)
        rows = [row for row in evidence.to_pylist() if not row["retry"]]
        lines = evidence_answer(evidence, request_log=True, notes=notes_of_brokers(lake, name, evidence))
        result.wrong.extend(line for line in lines if any(_wrong_numbers_of_lines(rows, line)))
        seconds, brokers = facts.seconds(), facts.brokers()
        for text in (*sentences, *stories, *lines):
            if not all(names_what_is_there(facts, seconds, brokers, re.sub("last seen at [\\d:]+", "", text))):
                result.wrong.append(text)
            result.wrong.extend(wrongly_last_seen(lake, text))
        said = said_in(
            [
                *sentences,
                *(f"{incident_time(one)}: {incident_story(one)}" for one in own.incidents if one["cluster_id"] == name),
            ]
        )
        result.wrong.extend(f"{one} but {other}" for one, other in contradictions(said))
        result.wrong.extend(["healthy followers that were silent themselves"] * facts.healthy_but_silent())
    return result
