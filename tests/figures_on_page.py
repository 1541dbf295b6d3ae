"""Texts of the report's page and of `explain`, looked up in the tables by other queries than those that wrote them.

`check_page` and `check_explanations` list what the tables do not bear out, and what contradicts itself.
"""

import html
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final, NamedTuple

from isr_batch.explain.shrink_data import explain_shrink
from isr_batch.explain.shrink_text import shrink_lines
from isr_batch.incidents.own_shrinks import own_shrinks
from isr_batch.incidents.rule_choices import read_scores_for_choices
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.window import AskedTime
from tests.figures_in_answers import Facts, names_what_is_there, number
from tests.said_in_answers import contradictions, said_in

Row = dict[str, Any]
_SET: Final = ("cluster_id", "topic", "partition_id", "leader_id", "replica_id")
_CHANGE: Final = (*_SET, "rule", "change_time", "last_caught_up_time_ms", "kind")
_OF_CHANGES: Final = (*_CHANGE, "follower_log_end_offset", "leader_log_end_offset", "high_watermark", "isr_after")
_OF_VERDICTS: Final = (
    *_SET, "rule", "change_time", "verdict", "primary_cause", "lag_ms", "true_lag_ms", "leader_silent_ms",
    "leader_held_ms", "restored_time", "certainty",
)  # fmt: skip

HEADLINE: Final = r"Broker (\d+) drops (broker \d+(?: and broker \d+)*) from the ISR of (.+)-(\d+) at (.+) UTC"
FOLLOWER: Final = re.compile(
    r"Broker (?P<who>\d+): (?P<verdict>\w+), because .*?\. (?:The check may .*? later\. )?"
    r"(?:Last caught up (?P<lag>[\d,]+) ms before|Not caught up in this term), with a lag time of [\d,]+ ms; "
    r"its true lag (?:was (?P<true>[\d,]+) ms|is unknown)(?:, and .* knew of (?P<lacked>[\d,]+) records? .*?)?\. "
    r"(?:Of that time the leader (?:was silent for (?P<silent>[\d,]+) ms)?(?: and )?"
    r"(?:held its fetches for (?P<held>[\d,]+) ms)?\. )?"
    r"(?:Back in the ISR after (?P<back>[\d.e+]+) s|The log ends, or the term does, before it is back)\."
)


def _us(time: datetime | None) -> int | None:
    return None if time is None else round(time.replace(tzinfo=UTC).timestamp() * 1e6)


def _ms_at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def _written(value: int | None) -> str | None:
    return f"{value:,}" if value else None


class Replayed(NamedTuple):
    """Rows of the replay and of the brokers' logs, by shrink: cluster, topic, partition, rule, replica, epoch ms."""

    verdicts: dict[tuple[Any, ...], Row]
    changes: dict[tuple[Any, ...], Row]
    observed: list[Row]

    @classmethod
    def of(cls, lake: Lake) -> "Replayed":
        verdicts, changes = (
            {_key(row): row for row in read_columns(lake, name, columns).to_pylist()}
            for name, columns in (("shrink_verdicts", _OF_VERDICTS), ("isr_changes", _OF_CHANGES))
        )
        observed = read_columns(lake, "observed_isr_changes", (*_SET, "change_time", "kind", "made_by")).to_pylist()
        return cls(verdicts, {key: row for key, row in changes.items() if row["kind"] == "shrink"}, observed)


def _key(row: Row) -> tuple[Any, ...]:
    at_ms = (_us(row["change_time"]) or 0) // 1000
    # An expand of the same millisecond is another change.
    return (
        *(row[name] for name in ("cluster_id", "topic", "partition_id", "rule", "replica_id")),
        at_ms,
        row.get("kind", "shrink"),
    )


def texts_of_page(page: str) -> dict[str, list[str]]:
    """Return what a reader sees of each cluster, without pictures: a text for each element."""
    sections = re.findall(r'<section class="cluster"[^>]*>\s*<h2>([^<]+)</h2>(.*?)</section>', page, re.DOTALL)
    return {html.unescape(name): _texts(text) for name, text in sections}


def _texts(markup: str) -> list[str]:
    seen = re.sub(r"<(svg|script|pre)\b.*?</\1>", "\n", markup, flags=re.DOTALL)
    parts = re.split(r"<[^>]*>", re.sub(r"</?(?:code|b|i|a)\b[^>]*>", "", seen))
    return [text for part in parts if (text := " ".join(html.unescape(part).split()))]


def check_page(lake: Lake, page: str) -> list[str]:
    """List the texts of a report that the tables do not bear out."""
    own, scores, replayed = own_shrinks(lake), read_scores_for_choices(lake), Replayed.of(lake)
    texts, wrong, shrinks = texts_of_page(page), [], 0
    for cluster in own.clusters:
        facts, mine = Facts(own, scores, cluster), texts[cluster["cluster_id"]]
        seconds, brokers = facts.seconds(), facts.brokers()
        wrong += [text for text in mine if not all(names_what_is_there(facts, seconds, brokers, text))]
        for at, text in enumerate(mine):
            if found := re.fullmatch(f"Picture: {HEADLINE}", text):
                shrinks += 1
                wrong += [f"{text}: {said}" for said in _wrong_about_shrink(replayed, cluster, found, mine[at + 1 :])]
        wrong += [f"{one} but {other}" for one, other in contradictions(said_in(mine))]
    assert shrinks >= min(len(own.clusters), sum(bool(one["rule"]) for one in own.incidents))
    return wrong


def _wrong_about_shrink(replayed: Replayed, cluster: Row, found: re.Match[str], rest: Sequence[str]) -> Iterator[str]:
    """Compare the sentences under a headline with the rows of its followers."""
    followers = [int(each) for each in re.findall(r"\d+", found[2])]
    at_ms = _ms_at(found[5])
    rule = next(m[1] for text in rest if (m := re.match(r"(?:The brokers ran|By a replay of) ([\w.-]+);", text)))
    mine = [*takewhile(lambda text: not text.startswith("Picture: "), rest)]
    said = {int(m["who"]): m for text in mine if (m := FOLLOWER.match(text))}
    for follower in followers:
        key = cluster["cluster_id"], found[3], int(found[4]), rule, follower, at_ms, "shrink"
        row, text = replayed.verdicts.get(key), said.get(follower)
        if row is None or text is None or row["leader_id"] != int(found[1]):
            yield f"no such drop of broker {follower}"
            continue
        back = row["restored_time"] and max(0, _us(row["restored_time"]) - _us(row["change_time"])) // 1000  # type: ignore[operator]
        change = replayed.changes[key]
        ends = change["leader_log_end_offset"], change["follower_log_end_offset"]
        wanted = {
            "verdict": row["verdict"], "lag": None if row["lag_ms"] is None else f"{row['lag_ms']:,}",
            "true": None if row["true_lag_ms"] is None else f"{row['true_lag_ms']:,}",
            "silent": _written(row["leader_silent_ms"]), "held": _written(row["leader_held_ms"]),
            "back": None if back is None else f"{back / 1000:.3g}",
            "lacked": _written(ends[0] - ends[1]) if None not in ends and ends[1] >= 0 else None,
        }  # fmt: skip
        yield from (f"{name} of broker {follower} is {of}" for name, of in wanted.items() if text[name] != of)


def check_explanations(lake: Lake, most: int) -> list[str]:
    """List the lines of `explain` about one drop of each incident, of ``most`` in each cluster, that are not so."""
    own, replayed, wrong = own_shrinks(lake), Replayed.of(lake), []
    drops = own.drops.to_pylist()
    for cluster in own.clusters:
        name = cluster["cluster_id"]
        for one in [one for one in own.incidents if one["cluster_id"] == name and one["rule"]][:most]:
            drop = next(
                row for row in drops
                if (row["cluster_id"], row["fault_id"], row["incident"]) == (name, one["fault_id"], one["incident"])
                and row["replayed_us"] is not None
            )  # fmt: skip
            at = AskedTime(drop["replayed_us"])
            lines = shrink_lines(explain_shrink(lake, drop["topic"], drop["partition_id"], at, drop["rule"]))
            wrong += [f"{lines[0]}: {said}" for said in _wrong_about_explanation(replayed, drop, lines)]
    return wrong


def _wrong_about_explanation(replayed: Replayed, drop: Row, lines: Sequence[str]) -> Iterator[str]:
    """Look up the figures of each follower's part."""
    at_ms = drop["replayed_us"] // 1000
    text = "\n".join(lines)
    before, after = (
        [int(each) for each in re.findall(r"\d+", part)] for part in re.findall(r"\[([\d, ]*)\]", lines[3])
    )
    if _ms_at(lines[0].rpartition(" at ")[2].removesuffix(" UTC")) != at_ms:
        yield "another time"
    parts = re.split(r"\n\nBroker (\d+): ", text)[1:]
    if {int(who) for who in parts[::2]} != {*before} - {*after}:
        yield "those who left are not those explained"
    for who, part in zip(parts[::2], parts[1::2], strict=True):
        key = drop["cluster_id"], drop["topic"], drop["partition_id"], drop["rule"], int(who), at_ms, "shrink"
        row, change = replayed.verdicts[key], replayed.changes[key]
        caught_up, back = change["last_caught_up_time_ms"], row["restored_time"]
        wanted = [f"{row['verdict']}, {row['primary_cause']}", f"lastCaughtUpTimeMs {caught_up}"]
        if row["lag_ms"] is not None and caught_up > 0:
            wanted.append(f", {row['lag_ms']:,} ms before the shrink")
        if change["leader_log_end_offset"] is not None:
            wanted.append(f", leader {change['leader_log_end_offset']}; high watermark {change['high_watermark']}")
        if (held := change["follower_log_end_offset"]) is not None and held >= 0:
            wanted.append(f"log end offset: follower {held},")
        if back is not None:
            wanted.append(f"back in the ISR at {back:%Y-%m-%d %H:%M:%S}.{back.microsecond // 1000:03}")
        if re.search(r"true lag [\d,]+ ms", part) and "lacked nothing" not in part.split("Last fetches")[0]:
            wanted.append(f"true lag {row['true_lag_ms']:,} ms")
        yield from (f"broker {who}: not {each}" for each in wanted if each not in part)
        yield from (f"broker {who}: {each}" for each in _wrong_about_logged(row, part, replayed.observed, at_ms))


def _wrong_about_logged(row: Row, part: str, observed: Sequence[Row], at_ms: int) -> Iterator[str]:
    """Look up whether the brokers' logs have the shrink, and when."""
    logged = [
        (each["made_by"], (_us(each["change_time"]) or 0) // 1000 - at_ms)
        for each in observed
        if each["kind"] == "shrink" and all(each[name] == row[name] for name in _SET)
    ]
    if found := re.search(r"have this shrink too,(?: by the (\w+),)? (?:at the same time|([\d,]+) ms (\w+))", part):
        apart = number(found[2] or "0") * (-1 if found[3] == "earlier" else 1)
        if not any(who == (found[1] or "unknown") and abs(ms - apart) <= 1 for who, ms in logged):
            yield found[0]
    elif any(abs(ms) < 1000 for _, ms in logged):
        yield "the brokers' logs have it"
