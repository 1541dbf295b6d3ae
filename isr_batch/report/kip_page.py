"""Write a Markdown page that compares two rules, for the discussion of a Kafka improvement proposal (KIP)."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from textwrap import indent
from typing import Any, Final

from isr_batch import __version__
from isr_batch.errors import UsageError
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.phrases import count_of, listed
from isr_batch.report.kip_figures import (
    COUNTS,
    FIGURES,
    NOTES,
    PAIRED,
    SCALES,
    STORY,
    FoundPairs,
    Row,
    checks_with_mistakes,
    in_short,
    lag_time_of,
    own_changes,
    stories_by_outcome,
    with_derived,
)
from isr_batch.report.markdown_table import EXACT, markdown_table, titled_table
from isr_batch.scoring.broker_pairs import Floats, figure_of_draws, figures_of_pairs, sums_of_broker_pairs
from isr_batch.scoring.disagreements import compare_rules
from isr_batch.scoring.scores import rules_side_by_side
from udfs.kernel.causes import CAUSES
from udfs.rules import REGISTRY, RULE_FILE, module_of

_HEAD: Final = """
Made by isr-batch {version}: `{command}`. T is the lag time, `replica.lag.time.max.ms`.
"""
_READ_AS: Final = """
How the text of {rules} was read, where it can be read in more than one way: `docs/readings-of-proposals.md` of
isr-batch."""
_READINGS: Final = """Other readings have other figures. Measured here:
{measured}.
To measure another on recorded logs (stories have the defaults):
`isr-batch run --logs LOGS --lake LAKE --rules {pair} --set RULE.PARAM=VALUE`, then
`isr-batch kip {names} --lake LAKE`.
"""
_SAMPLES: Final = """
The recorded clusters are the samples of isr-batch: each has three brokers, all on one host, which were stopped and
killed on purpose (`data/samples/README.md`). All but `restart` had broker.session.timeout.ms = 60 s. With the default
of 9 s, the controller would have removed each broker that was stopped for over T = 10 s before its leaders did. With
the default T of 30 s (since 2.5, KIP-537), the stops, of at most 22 s, would have made no leader drop a follower.
Shares and rates are those of such tests, not of a cluster in production.
"""
_NO_FLEETS: Final = """
Clusters with random faults are not simulated for this page; `docs/study.md` of isr-batch has them, under the rules that
`all` stands for.
"""
_SAYS: Final = """
A shrink is a *mistake* if the follower should have stayed. *By lag*, a follower belongs in the ISR while its true lag,
the age of the oldest record that it lacks, is at most T; *by blame*, while its delay is not its own fault. So dropping
the follower of a slow leader can be right by lag and is a mistake by blame. Dropping a stopped follower that lacks only
young records is right by blame and a mistake by lag. A rule is right by lag while it agrees with the rule `true-lag`.
It is wrong by blame after a mistake until the follower is back, during a miss, and while a follower that has caught up
again is still outside.

- A *miss* is a failed follower left in the ISR: its true lag exceeds 1.5 T, for a reason that would make its shrink
  genuine. It is counted once until the follower is within T again. Since 0.10.2 Kafka checks every T/2, so a follower
  may stay until 1.5 T by design.{seldom}
- The high watermark is *below the log end* also during the round trip of each fetch, so a healthy cluster has such time
  too, and only differences between rules say something.
- *Unavailable* is the time in which a request with acks=all is refused because the ISR is under min.insync.replicas, or
  would wait for more than 1 s, whether a producer sends one or not. So it does not depend on how many requests there
  are: a request would also wait in an idle partition, although its high watermark is at the log end. A healthy cluster
  has little of it. A rule that keeps a follower may only turn refusals into waits. The time without a leader, the same
  under each rule, is left out (column `no_leader_seconds` of `rule_scores`).
- *Detection* is the true lag at genuine shrinks. It may be below T, because a rule may begin to count before the oldest
  record that the follower lacks was appended. It is given for each T, because a mean over several T would show how many
  shrinks each T has. Each rule's mean is over its own genuine shrinks, so it may differ although no failure is found
  later, because one rule makes fewer of them.
- An *append* is what a produce request has for one partition. Latencies are counted in buckets no wider than a
  sixteenth of the latency, so a percentile of them is exact to about 6 %.
- The latency *over requests* is that of the requests in the logs; *over time*, how long a request would wait at any
  instant, whether a producer sends one or not. Producers that wait send nothing, so a stall of a minute may be one
  request in a million. Over time, waits of up to 1 s are included as 0, because logs do not show how long a fetch would
  have waited for data. Requests that are refused, or unanswered when the leader changes, are not included.
"""
_INTERVALS: Final = """
Brackets are 95 % intervals, by a bootstrap over the {leaders} leaders: the shrinks that a leader makes are drawn
together, because they come in bursts. Both rules are computed from the same draws. With few leaders, brackets are too
narrow. A difference whose bracket includes 0, or ends there, may be chance. A bracket [0, 0] only says that these logs
have none. {bursts}The table has {figures} figures, which mostly depend on each other, and no bracket is adjusted for
that: if nothing differed, about one in twenty independent brackets would still exclude 0. If this pair was chosen
because it stood out among many rules, the brackets are too narrow as well.
"""
_PARTED: Final = """
Numbers of shrinks, by primary cause: the first that applies of caught_up (the follower really had every record: the
leader had not handled the fetch that shows it or, from 0.8.1 to 2.0, the partition was idle), keeping_pace (fetched
within T, and within T by lag), slow_leader (leader stopped or slow) and unacked_only (fetched within T, and lacks
nothing acknowledged), which are mistakes by blame, then follower_stopped and follower_slow, which are genuine. Shrinks
of one follower by both rules are one event if at most T lies between them. A rule that does not make a shrink may make
it more than T later, or may have dropped the follower before; it need not be a miss.
"""
_SIMULATED: Final = """
The simulated leader applies the rule, and producers and followers react to it. `docs/stories.md` of isr-batch describes
the stories. Each is one run (seed {seeds}), without an interval. Times and counts are sums over its partitions. The
controller of a story does not remove brokers that have stopped, and its cluster has no ELR (KIP-966). Its requests have
no timeout: a real one ends with REQUEST_TIMED_OUT after request.timeout.ms (30 s) and is retried, so longer latencies
and appends *never acknowledged* are those of one endless attempt.{equal}{notes}
"""
_ALL: Final = """
A dash means that a figure does not apply, or is not known from the logs. The *heir* is the replica that a clean
election would choose if the leader died. A record that a replica *lacked* was acknowledged (with any acks), or was
below the high watermark. A recorded cluster may have ELR (KIP-966), whose members may be heirs.
"""
_LIMITS: Final = """
The replay is open-loop: fetches and appends stay as recorded while the rule changes, so it shows the first step only.
The stories show how producers and followers react. Latencies are over appends: a producer that waits sends none. The
unavailable time does not have this fault; it leaves out followers outside the ISR for which the high watermark waits.
If the high watermark reaches an append while the ISR is under min.insync.replicas, the append is counted among the
acknowledged ones, even where Kafka would answer NOT_ENOUGH_REPLICAS_AFTER_APPEND. Rates hold for these logs, with the
faults that are in them, and for no others.
"""


def kip_page(  # noqa: PLR0913 three of them have a default
    lakes: Sequence[Lake],
    old: str,
    new: str,
    stories: Sequence[Row] = (),
    command: str = "kip",
    *,
    samples: bool = False,
) -> str:
    """Return the Markdown page that compares two rules.

    Parameters
    ----------
    lakes : sequence of Lake
        Lakes in which both rules were replayed.
    old, new : str
        Names of the rules.
    stories : sequence of dict
        Rows of table ``experiment_results``. Rows of other rules are ignored.
    command : str
        The command that wrote the page, which the page shows at its top.
    samples : bool
        Whether the lakes have the shipped samples, which the page then describes.

    Raises
    ------
    UsageError
        If a name is not a rule, both are the same, or a rule was replayed twice with one lag time.
    NoInputError
        If a rule was not replayed in one of the lakes.
    """
    causes = [compare_rules(lake, old, new) for lake in lakes]
    measured = dict(_params(lakes, old, new))
    shown = sorted((row for row in stories if row["rule"] in {old, new}), key=lambda row: _order(row, old))
    shown = [with_derived(row) for row in shown]
    equal, differing = stories_by_outcome(shown)
    found = {rule: dict(_pairs(lakes, rule)) for rule in (old, new)}
    page = [
        f"# {old} and {new}",
        "",
        in_short(found, differing, old, new),
        *(f"\n- `{rule}` {rule_said(rule, params)}{_described(rule)}" for rule, params in measured.items()),
    ]
    given = Path(os.environ.get(RULE_FILE, "")).stem  # readings-of-proposals.md does not describe a user's own rule
    if proposed := [r for r in (old, new) if REGISTRY[r].kind == "proposed" and module_of(r) != given]:
        page.append(_READ_AS.format(rules=" and ".join(f"`{rule}`" for rule in proposed)))
        if readings := _readings(measured, proposed):
            page.append(_READINGS.format(measured=readings, pair=f"{old},{new}", names=f"{old} {new}"))
    page += [_HEAD.format(version=__version__, command=command)]
    page += [
        *_measured(lakes, shown),
        _SAMPLES if samples else "",
        "",
        "## What they do on recorded fetches",
        _SAYS.format(seldom=_seldom(old, new)),
        *own_changes(lakes, old, new),
        *_differences(found, checks_with_mistakes(lakes, old, new), old, new),
    ]
    page += ["", "## Where they differ", _PARTED]
    columns = {"cause": "cause", "only_a": f"only {old}", "only_b": f"only {new}"}
    columns |= {"both_by_a": f"both, by cause under {old}", "both_by_b": f"both, by cause under {new}"}
    page += titled_table(columns, _added(causes))
    if shown:
        page += ["", "## What they do in simulated clusters"]
        said = f" Both rules have equal results in {listed([f'`{name}`' for name in equal])}." if equal else ""
        notes = "".join(
            f" {NOTES[name]}" for name in dict.fromkeys(row["scenario"] for row in differing) if name in NOTES
        )
        page += [_SIMULATED.format(seeds=listed(sorted({row["seed"] for row in shown})), equal=said, notes=notes)]
        page += titled_table(STORY, differing)
    for lake in lakes:
        runs = [with_derived(row) for row in rules_side_by_side(lake) if row["rule"] in {old, new}]
        runs.sort(key=lambda row: (row["T"], json.loads(row["params_json"])["min_insync_replicas"], row["rule"] != old))
        title = f"## All figures{f' of {Path(lake.root).name}' if len(lakes) > 1 else ''}"
        page += ["", title, _ALL, *_figures(runs)]
    return "\n".join([*page, "", "## Limits", _LIMITS])


def _params(lakes: Sequence[Lake], old: str, new: str) -> Iterator[tuple[str, Row]]:
    """Yield both rules, each with the parameters of one of its runs."""
    runs = {row["rule"]: json.loads(row["params_json"]) for lake in lakes for row in rules_side_by_side(lake)}
    return ((rule, runs[rule]) for rule in (old, new))


def rule_said(rule: str, params: Row) -> str:
    """Describe a rule: the Kafka releases that have it, or its source; named values of parameters; and its summary."""
    its = REGISTRY[rule]
    if its.kind != "released":
        return f"(in no release of Kafka; {its.source}): {its.summary}"
    variants = "".join(
        f"; here `{name}` = {params[name]} ({param.says})" for name, param in its.params.items() if param.choices
    )
    return f"(Kafka {its.in_force}{variants}). New in it: {its.summary}"


def _described(rule: str) -> str:
    """Return the paragraph below the summary of a rule's description, as a part of a list item; empty without one."""
    paragraphs = REGISTRY[rule].doc.replace("``", "`").split("\n\n")
    return "".join(f"\n\n{indent(text, '  ')}" for text in paragraphs[1:2])


def _order(row: Row, old: str) -> tuple[object, ...]:
    """Return the sort key of a story: scenario, seed, then the old rule before the new one."""
    return row["scenario"], row["seed"], row["rule"] != old


def _measured(lakes: Sequence[Lake], stories: Sequence[Row]) -> list[str]:
    """List the recorded clusters and the simulated stories on which the rules were measured."""
    clusters = [row for lake in lakes for row in _clusters(lake)]
    hours = {row["scenario"]: row["simulated_hours"] for row in stories}
    simulated = f"{count_of(len(hours), 'story').replace('storys', 'stories')} with the rule in the loop"
    runs = ", ".join(f"`{name}` ({count:g} h)" for name, count in hours.items())
    return [
        "Measured:", "",
        *(f"- recorded cluster {row}" for row in clusters),
        *([f"- simulated: {simulated}: {runs}"] if hours else []),
        _NO_FLEETS,
    ]  # fmt: skip


def _clusters(lake: Lake) -> list[str]:
    """Describe each recorded cluster of a lake: name, release, lag time, and number of partitions."""
    names = ("cluster_id", "broker_version", "replica_lag_time_max_ms", "topic", "partition_id")
    terms = read_columns(lake, "leader_epochs", (*names, "start_time"))
    found: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}
    for row in terms.to_pylist():
        key = tuple(row[name] for name in names[:3])
        found.setdefault(key, set()).add((row["topic"], row["partition_id"]))
    return [
        f"`{cluster}`: Kafka {release or 'of unknown release'}, T = {lag_ms / 1000:g} s, "
        f"{count_of(len(partitions), 'partition')}"
        for (cluster, release, lag_ms), partitions in sorted(found.items(), key=str)
    ]


def _differences(found: FoundPairs, bursts: str, old: str, new: str) -> list[str]:
    """Return the table that compares the rules ``old`` and ``new`` over all clusters, and an explanation above it."""
    both = sorted(found[old].keys() & found[new].keys())

    def oflag_time_of(lag_ms: int | None) -> dict[str, dict[str, Floats]]:
        """Compute the figures of both rules at one lag time or, for None, over all lag times."""
        keys = [key for key in both if lag_ms in {None, key[0]}]
        return {rule: figures_of_pairs([found[rule][key] for key in keys]) for rule in (old, new)}

    figures = oflag_time_of(None)
    compared = [(title, figures, name) for name, title in PAIRED.items()]
    compared += [
        (f"detection, s, mean, T = {lag_ms / 1000:g} s", oflag_time_of(lag_ms), "detection_s")
        for lag_ms in sorted({key[0] for key in both})
    ]
    rows = []
    for title, each, name in compared:
        scale, whole = 100 if name.startswith("right_") else 1, name in COUNTS
        by_rule = {rule: _interval(scale * each[rule][name], whole=whole) for rule in (old, new)}
        difference = _interval(scale * (each[new][name] - each[old][name]), whole=whole, sign="+")
        rows.append({"figure": title} | by_rule | {"difference": difference})
    said = _INTERVALS.format(leaders=len({(*key[1:3], key[4]) for key in both}), figures=len(rows), bursts=bursts)
    hours = figures[old]["exposure_us"][0] / 3.6e9
    return [f"{hours:,.1f} partition-hours were replayed.", said, *markdown_table(rows[0], rows)]


def _seldom(old: str, new: str) -> str:
    """Name the rules that check only once per lag time, and so may miss by design."""
    names = [f"`{rule}`" for rule in (old, new) if REGISTRY[rule].checks_per_lag_time == 1]
    return f" {listed(names)}, which checked every T, may miss by design." if names else ""


def _readings(measured: Mapping[str, Row], proposed: Sequence[str]) -> str:
    """List the parameters of the proposals, with their values here."""
    return ", ".join(f"`{rule}.{name}={measured[rule][name]}`" for rule in proposed for name in REGISTRY[rule].params)


def _pairs(lakes: Sequence[Lake], rule: str) -> Iterator[tuple[tuple[Any, ...], Row]]:
    """Yield the key and the counts of each row of `sums_of_broker_pairs` that belongs to a rule, over all lakes.

    The key is lag time (ms), index of the lake, cluster, day, leader, follower, and min.insync.replicas.

    Raises
    ------
    UsageError
        If a lake contains two replays of the rule with the same lag time.
    """
    names = ("cluster_id", "event_date", "leader_id", "replica_id")
    for number, lake in enumerate(lakes):
        seen = set()
        for row in sums_of_broker_pairs(lake).to_pylist():
            if row["rule"] != rule:
                continue
            # The same broker pair has several rows if its topics differ in min.insync.replicas.
            min_isr = json.loads(row["params_json"])["min_insync_replicas"]
            key = (lag_time_of(row), number, *(row[name] for name in names), min_isr)
            if key in seen:
                raise UsageError(
                    f"{lake.root} has two replays of {rule} with a lag time of {key[0]} ms",
                    "compare lakes with one parameter set of each rule",
                )
            seen.add(key)
            # Clusters in different lakes may have the same name.
            yield key, row | {"cluster_id": f"{number}/{row['cluster_id']}"}


def _interval(values: Floats, *, whole: bool, sign: str = "") -> str:
    """Format a figure with its 95 % interval, such as "12 [10, 15]", or as "-" if the figure is undefined.

    ``values`` are the figure and its values in the draws. If ``whole`` is true, no decimals are shown. ``sign`` is the
    sign option of Python's format.
    """
    figure = figure_of_draws(values)
    if not isfinite(figure.value):
        return "-"
    digits = ",.0f" if whole or abs(figure.value) >= EXACT else ",.4g"
    value, low, high = (f"{number:{sign}{digits}}" for number in (figure.value, figure.low, figure.high))
    return f"{value} [{low}, {high}]"


def _added(causes: Sequence[Sequence[Row]]) -> list[Row]:
    """Add up the numbers of shrinks of several lakes by cause. Causes without any shrink are left out."""
    names = [name for name in causes[0][0] if name != "cause"]
    added = {
        cause: {name: sum(row[name] for rows in causes for row in rows if row["cause"] == cause) for name in names}
        for cause in (*CAUSES, "total")
    }
    return [{"cause": cause} | row for cause, row in added.items() if cause == "total" or any(row.values())]


def _figures(runs: Sequence[Row]) -> list[str]:
    """Return the lines of the table that shows all figures (rows) of the rule runs (columns)."""
    columns = [f"{row['rule']}, {_params_on_kip_page(row['params_json'])}" for row in runs]
    rows = [
        {"figure": title} | {column: _scaled(row[name], name) for column, row in zip(columns, runs, strict=True)}
        for name, title in FIGURES.items()
    ]
    return markdown_table(("figure", *columns), rows)


def _scaled(value: Any, name: str) -> Any:  # noqa: ANN401 a table's cell
    return value if value is None or name not in SCALES else value * SCALES[name]


def _params_on_kip_page(params_json: str) -> str:
    """Format the parameters of a rule run, with ``T`` for the lag time and Kafka's name for min.insync.replicas."""
    params = json.loads(params_json)
    lag_ms, min_isr = params.pop("replica_lag_time_max_ms"), params.pop("min_insync_replicas")
    written = {"T": f"{lag_ms / 1000:g} s", "min.insync.replicas": min_isr, **params}
    return ", ".join(f"{name} = {value}" for name, value in written.items())
