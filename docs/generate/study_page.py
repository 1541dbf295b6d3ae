"""docs/study.md with its pictures, from the tables in docs/study."""

from collections import Counter
from collections.abc import Iterator
from math import isfinite, log1p
from pathlib import Path
from typing import Any, Final

import altair as alt

from docs.generate import rule_pictures
from docs.generate.study_constants import AS_THEY_ARE, CONSTANTS
from docs.generate.study_figures import (
    HOURS_OF_RUN,
    KINDS,
    MIXED,
    PARTITIONS,
    QUIET,
    RATES,
    frontier,
    mistakes_per_fault,
    recorded_figures,
    releases_of_run,
    rule_of_run,
    rules,
    runs,
    simulated_figures,
    table,
)
from docs.generate.study_waits import study_of_waits
from isr_batch import __version__
from isr_batch.phrases import count_of, listed
from isr_batch.report.markdown_table import markdown_table
from isr_batch.scoring.broker_pairs import Figure
from udfs.rules import ALL_RULES, BASELINE

DOCS: Final = Path(__file__).parents[1]
PAGE: Final = DOCS / "study.md"
PICTURES: Final = DOCS / "images" / "study"
CLOSE: Final = 0.03
"""Share of an axis within which points have one label."""
Spec = dict[str, Any]

_INTRODUCTION: Final = """\
# Which rule should Kafka have?

<!-- made by `python -m docs.generate.study` -->

This study compares the {rules} rules that are replayed by default and {more} later versions of them ({many} in all)
on {recorded}, {stories}, and {hours:,.0f} simulated hours under each rule ({seeds} seeds), with isr-batch {version}. T
is the lag time, `replica.lag.time.max.ms`. A mistake is a spurious shrink. Mistakes are counted by [two
standards](verdicts.md#by-blame-not-by-lag): *by lag*, dropping a follower is a mistake if its true lag is at most T;
*by blame*, it is a mistake if the delay is not the follower's own fault. Intervals in brackets are 95 % intervals.

A rule named after a release may have been the rule of later releases as well; the first table lists them. If a later
release changed a detail, the rule has two versions with a row each, such as `kafka-2.1` and `kafka-2.1 as of 2.4.0`.
(Releases 0.8.0 and 0.8.1 differ as well, but were not studied.) All rules are compared with the same T and
min.insync.replicas, not with the defaults of their releases: `replica.lag.time.max.ms` is 10 s by default up to 2.4,
and 30 s since 2.5 (KIP-537). `replica.lag.max.messages` of `kafka-0.8` is 4000. All other parameters have the defaults
that the page of [rules](rules.md) lists.

The next table compares two figures of each rule in simulated clusters: mistakes by blame, and one other figure. It
lists the rules on the *frontier*: no other rule is better in one of the two figures and at least as good in the other.
Differences below 1 % are ignored; reference rules are left out. No interval is adjusted for comparing {many} rules in
many figures. So the best rule looks better than it is, and the intervals do not separate rules with similar figures.

"""
_RECORDED: Final = """\
## Recorded faults

The recordings have {exposure:,.0f} partition-hours in all. While they were made, brokers were stopped, slowed, cut off
and restarted on purpose. The brokers ran these releases: {releases}. The lag times of these brokers are {lag_times} s.
These clusters mostly had a session timeout of 20 to 60 s. With Kafka's defaults (T = 30 s, sessions of 9 s in KRaft),
leaders would have dropped no follower after many of these faults, since the controller would have removed it first.
Intervals come from a bootstrap over the leaders of all recordings, in which the shrinks of a leader are drawn together.

*Detection* is the true lag at genuine shrinks, in units of T. Detection may be below 1, because a stopped follower may
lack only young records. *Right by blame* and *right by lag* are the share of time in which the rule's answer, follower
in the ISR or not, is right. A *miss* is a follower that failed and was left in the ISR until its true lag exceeded 1.5
T. {most_under:.0%} of the time under min ISR is in a single recording. The last two columns are from {stories} stories
whose simulated leaders apply the rule: the number of stories with a mistake, and with a missed failure.

"""
_SIMULATED: Final = """
## Simulated clusters

Simulated leaders apply the rule, and producers and followers react to it. Each kind of fault was simulated separately,
on three brokers with {partitions} partitions (T = 10 s, min.insync.replicas = 2). Each rule has {seeds} simulations of
{hours:g} h per kind, with the same random numbers for all rules. The results per fault are then weighted by how often
the brokers of a partition have such a fault in a week. The table has these rates for an *ordinary* and a *sick*
cluster. **These rates are assumed**; if yours differ, weight the mistakes per fault in the first picture by them.

"""
_WEEK: Final = """
Mistakes and misses are per week and 1,000 partitions. *Detection* is the true lag at genuine shrinks: the median of
each simulation, averaged over simulations with the numbers of genuine shrinks as weights. *Unavailable* is the time per
week and partition in which acks=all producers had to wait. They wait if too few replicas are in the ISR, or if the high
watermark is below the log end; time with both counts once. The time in which appends wait for the next fetch in quiet
clusters is subtracted. Intervals come from a bootstrap over the {seeds} seeds of each kind of fault, which draws
everything in one simulated cluster together. Followers that `kafka-3.7` misses had joined far behind (KAFKA-19996).

"""
_CHECK: Final = """
As a check, {runs} with faults of all kinds were simulated as well. If the results of single kinds of faults are added
up, `{rule}` should make {expected:,.0f} mistakes in these mixed runs; it makes {found:,.0f}.
"""
_CONSTANTS: Final = """
## How verdicts depend on their constants

Verdicts depend on two constants. A follower is *alive* if it fetched within one lag time before the shrink. A leader's
delay of up to a tenth of the lag time is *ordinary work*. To see how much verdicts depend on these constants, the
recorded shrinks of all rules were judged again from the fetches, by code that shares nothing with the replay
(`docs/generate/study_constants.py`). With the constants unchanged, {same:,} of {all:,} verdicts are those of the
replay. The table has the number of shrinks by verdict with half and with twice each constant.

"""
_LIMITS: Final = """
## Not shown here

- The recorded clusters have three brokers on one host, few partitions and small loads, and their faults were made on
  purpose. The recordings are replayed open-loop: fetches stay as recorded under every rule. So the results of a rule
  are only exact up to its first ISR change that the brokers did not make.
- Each of the eleven kinds of simulated faults happens alone, in groups of three replicas with one load. An interval
  only reflects the variation between the {seeds} seeds, not the errors of the rates and of the model.
- Lag time and min.insync.replicas are those of the recorded clusters, and 10 s and 2 in simulated clusters.
- Consumers, leaders that die (so no record is lost), and controllers that remove stopped brokers are not simulated.
- A rule that never drops a follower has no detection time, and is therefore not in the picture of detection times. Few
  mistakes alone say little: `majority` makes none, but misses failures.
- The limit for a miss, 1.5 T, is not varied. Up to 0.10.1 a leader checks once per T, and may miss by design.
- An interval [0, 0] only means that these simulations had no mistake or miss.

## The tables behind it

`docs/study` has the figures as Parquet files: `recorded.parquet` has one row per rule, recording and pair of brokers,
`stories.parquet` and `simulated.parquet` have one row per rule and simulation. `make study` makes these files and this
page from the sample clusters only; `make study STUDIED=DIR SEEDS={seeds}` replays other recordings.
"""


def page() -> str:
    """Write the page."""
    clusters = table("clusters")
    recordings = {row["cluster_id"] for row in clusters}
    stories = {row["scenario"] for row in table("stories")}
    seeds = len(runs(BASELINE, QUIET))
    hours = sum(len(runs(BASELINE, kind)) for kind in KINDS) * HOURS_OF_RUN
    exposure = sum(row["exposure_us"] for row in table("recorded") if row["rule"] == BASELINE) / 3.6e9
    under: Counter[str] = Counter()
    for row in table("recorded"):
        if row["rule"] == BASELINE:
            under[row["cluster_id"]] += row["under_min_isr_us"]
    return "\n".join([
        _INTRODUCTION.format(
            rules=len(ALL_RULES), more=len(rules()) - len(ALL_RULES), many=len(rules()), seeds=seeds,
            version=__version__,
            recorded=count_of(len(recordings), "recorded cluster"),
            stories=f"{len(stories)} [stories](stories.md#experiments)", hours=hours,
        ),
        *markdown_table(("releases", "rule"), _releases_of_rules()),
        "",
        *markdown_table(("clusters", *_FRONTIERS), _frontiers()),
        "",
        *_pictures(),
        _RECORDED.format(
            exposure=exposure, releases=_releases(), stories=len(stories), lag_times=_lag_times(),
            most_under=max(under.values()) / sum(under.values()),
        ),
        *markdown_table(("#", "rule", *_RECORDED_COLUMNS), map(_recorded_row, rules())),
        _SIMULATED.format(seeds=seeds, hours=HOURS_OF_RUN, partitions=PARTITIONS),
        *_rates(),
        _WEEK.format(seeds=seeds),
        *markdown_table(("#", "rule", *_WEEK_COLUMNS), map(_week_row, rules())),
        _check(), *study_of_waits(), *_constants(),
        _LIMITS.format(seeds=seeds),
    ])  # fmt: skip


_FRONTIERS: Final = {
    "mistakes and detection": "detection_s",
    "mistakes and unavailability": "unavailable_s",
    "mistakes and misses": "misses",
}


def _frontiers() -> list[dict[str, str]]:
    return [
        {"clusters": cluster}
        | {title: listed(f"`{rule}`" for rule in frontier(cluster, x)) for title, x in _FRONTIERS.items()}
        for cluster in RATES
    ]


def _releases_of_rules() -> list[dict[str, str]]:
    """List the releases with the rule that stands for them, oldest first."""
    found = [(releases_of_run(run), run) for run in rules()]
    return [{"releases": releases, "rule": f"`{run}`"} for releases, run in found if releases]


def _releases() -> str:
    found = {row["broker_version"] for row in table("clusters") if row["broker_version"]}
    return ", ".join(sorted(found, key=lambda release: [int(part) for part in release.split(".")]))


def _lag_times() -> str:
    found = {row["replica_lag_time_max_ms"] for row in table("clusters") if row["replica_lag_time_max_ms"]}
    return listed(f"{ms / 1000:g}" for ms in sorted(found))


def _interval(figure: Figure, digits: int = 0, factor: float = 1) -> str:
    if not isfinite(figure.value):
        return "-"
    value, low, high = (f"{factor * number:,.{digits}f}" for number in (figure.value, figure.low, figure.high))
    return f"{value} [{low}, {high}]"


_RECORDED_COLUMNS: Final = (
    "mistakes by blame", "mistakes by lag", "genuine shrinks", "misses", "right by blame, %", "right by lag, %",
    "detection, T", "under min ISR, s per h", "stories with a mistake", "stories with a miss",
)  # fmt: skip


def _recorded_row(rule: str) -> dict[str, Any]:
    found = recorded_figures(rule)
    stories = [row for row in table("stories") if row["rule"] == rule]
    cells = (
        _interval(found["spurious"]),
        _interval(found["within_lag"]),
        f"{found['genuine'].value:,.0f}",
        _interval(found["misses"]),
        _interval(found["right_by_blame"], 1, 100),
        _interval(found["right_by_lag"], 1, 100),
        _interval(found["detection_lag_times"], 2),
        f"{found['under_min_isr_us'].value:,.0f}",
        *(str(sum(row[name] > 0 for row in stories)) for name in ("spurious", "misses")),
    )
    return {"#": _number(rule), "rule": f"`{rule}`"} | dict(zip(_RECORDED_COLUMNS, cells, strict=True))


def _number(rule: str) -> int:
    return rules().index(rule) + 1


_WEEK_OF: Final = ("mistakes by blame", "mistakes by lag", "misses", "detection, s", "unavailable, s")
_WEEK_COLUMNS: Final = tuple(f"{cluster}: {name}" for cluster in RATES for name in _WEEK_OF)


def _week_row(rule: str) -> dict[str, Any]:
    cells: list[str] = []
    for cluster in RATES:
        found = simulated_figures(rule, cluster)
        cells += [
            _interval(found["spurious"], factor=1000),
            f"{1000 * found['within_lag'].value:,.0f}",
            f"{1000 * found['misses'].value:,.0f}",
            _interval(found["detection_s"], 1),
            _interval(found["unavailable_s"], 1),
        ]
    return {"#": _number(rule), "rule": f"`{rule}`"} | dict(zip(_WEEK_COLUMNS, cells, strict=True))


def _rates() -> list[str]:
    rows = [
        {"fault": kind, "faults simulated": sum(row["faults"] for row in runs(BASELINE, kind))}
        | {f"faults per week, {cluster} cluster": f"{rates[kind]:g}" for cluster, rates in RATES.items()}
        for kind in KINDS
        if kind != QUIET
    ]
    return markdown_table(rows[0], rows)


def _check() -> str:
    """Compare mixed fleets with what single faults let expect, of the kinds as they are drawn: all equally likely."""
    mixed = runs(BASELINE, MIXED)
    if not mixed:
        return ""
    kinds = [kind for kind in KINDS if kind != QUIET]
    per_fault = sum(mistakes_per_fault(BASELINE, kind) for kind in kinds) / len(kinds) * PARTITIONS / 100
    return _CHECK.format(
        runs=count_of(len(mixed), "run"), rule=BASELINE, expected=per_fault * sum(row["faults"] for row in mixed),
        found=sum(row["spurious"] for row in mixed),
    )  # fmt: skip


def _constants() -> Iterator[str]:
    """Count the verdicts with other constants, of all rules and of the baseline."""
    rows = table("constants")
    as_they_are = [row for row in rows if row["constants"] == AS_THEY_ARE]
    same = sum(row["shrinks"] for row in as_they_are if row["judged"] == row["replayed"])
    yield _CONSTANTS.format(same=same, all=sum(row["shrinks"] for row in as_they_are))
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        counts[row["constants"], f"all rules: {row['judged']}"] += row["shrinks"]
        if row["rule"] == BASELINE:
            counts[row["constants"], f"{BASELINE}: {row['judged']}"] += row["shrinks"]
    columns = [f"{rule}: {verdict}" for rule in ("all rules", BASELINE) for verdict in ("spurious", "genuine")]
    yield from markdown_table(
        ("constants", *columns),
        ({"constants": name} | {column: counts[name, column] for column in columns} for name in CONSTANTS),
    )


def _pictures() -> Iterator[str]:
    yield "![Mistakes of each rule after a single fault of each kind](images/study/faults.svg)\n"
    yield from (
        f"![Mistakes against {x}](images/study/{x.split()[0]}.svg)\n" for x in ("detection time", "unavailability")
    )


def pictures() -> dict[str, Spec]:
    """Draw all pictures, as Vega-Lite."""
    return {
        "faults": _of_faults(),
        "detection": _of_frontier("detection_s", "detection of genuine failures, s"),
        "unavailability": _of_frontier("unavailable_s", "acks=all unavailable, s per partition and week"),
    }


def _of_faults() -> Spec:
    """Heat map of the mistakes per fault."""
    values = [
        {"rule": rule, "fault": kind.removesuffix("-fleet"), "mistakes": round(mistakes_per_fault(rule, kind), 1)}
        for rule in rules()
        for kind in KINDS
    ]
    axis = alt.Axis(orient="top", labelAngle=-30)
    base = alt.Chart({"values": values}).encode(
        x=alt.X("fault:N", sort=None, title="mistakes per fault and 100 partitions; quiet: per hour", axis=axis),
        y=alt.Y("rule:N", sort=None, title=None),
    )
    heat = base.mark_rect().encode(
        color=alt.Color("mistakes:Q", scale=alt.Scale(type="symlog", scheme="oranges"), legend=None)
    )
    text = base.mark_text(fontSize=9).encode(text=alt.Text("mistakes:Q", format=",.0f"))
    return _finished(alt.layer(heat, text).properties(width=600, height=18 * len(rules())))


def _of_frontier(x: str, title: str) -> Spec:
    """Scatter plots of mistakes, one for each kind of cluster."""
    plots = [_scatter(list(_points(cluster, x)), title, cluster) for cluster in RATES]
    return _finished(alt.hconcat(*plots, spacing=30))


def _points(cluster: str, x: str) -> Iterator[dict[str, Any]]:
    """Yield a point for each rule that has such a figure; rules close to each other share the label of the first."""
    best = frontier(cluster, x)
    found = {rule: simulated_figures(rule, cluster) for rule in rules()}
    found = {rule: figures for rule, figures in found.items() if isfinite(figures[x].value)}
    most_x, most_y = (max(figures[name].value for figures in found.values()) for name in (x, "spurious"))
    labels: dict[str, list[str]] = {}
    places: dict[str, tuple[float, float]] = {}
    for rule, figures in found.items():
        at = figures[x].value / most_x, log1p(1000 * figures["spurious"].value) / log1p(1000 * most_y)
        near = (name for name, (u, v) in places.items() if abs(at[0] - u) < CLOSE and abs(at[1] - v) < CLOSE)
        first = next(near, rule)
        places.setdefault(first, at)
        labels.setdefault(first, []).append(str(_number(rule)))
    for rule, figures in found.items():
        ends = [*_ends(figures[x], 1), *_ends(figures["spurious"], 1000)]
        reference = rule_of_run(rule).kind == "reference"
        yield dict(zip(("x", "x_low", "x_high", "y", "y_low", "y_high"), ends, strict=True)) | {
            "label": ", ".join(labels.get(rule, [])),
            "what": "reference" if reference else "on the frontier" if rule in best else "other rules",
        }


def _ends(figure: Figure, factor: float) -> list[float]:
    return [float(f"{factor * number:.4g}") for number in (figure.value, figure.low, figure.high)]


def _scatter(values: list[dict[str, Any]], title: str, cluster: str) -> alt.LayerChart | alt.FacetChart:
    scale = alt.Scale(domain=["on the frontier", "other rules", "reference"], range=["#b2182b", "#2166ac", "#8a8a8a"])
    base = alt.Chart({"values": values}).encode(
        x=alt.X("x:Q", title=title, scale=alt.Scale(zero=False)),
        y=alt.Y("y:Q", title="mistakes per 1,000 partitions and week", scale=alt.Scale(type="symlog")),
        color=alt.Color("what:N", scale=scale, legend=alt.Legend(title=None, orient="bottom", symbolOpacity=1)),
    )
    return alt.layer(
        base.mark_rule(opacity=0.35).encode(x="x_low:Q", x2="x_high:Q"),
        base.mark_rule(opacity=0.35).encode(y="y_low:Q", y2="y_high:Q"),
        base.mark_circle(size=45, opacity=1),
        base.mark_text(align="left", dx=6, dy=-5, fontSize=10).encode(text="label:N"),
    ).properties(width=350, height=300, title=f"{cluster} clusters; numbers as in the tables")


def _finished(chart: Any) -> Spec:
    styled = chart.configure(aria=False, background="white", view={"stroke": "#cccccc"}, axis={"grid": False})
    return dict(styled.to_dict())


def write_pictures() -> None:
    """Draw the pictures that are old."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, spec in pictures().items():
        if rule_pictures.is_old(spec, PICTURES / f"{name}.svg"):
            (PICTURES / f"{name}.svg").write_text(rule_pictures.svg(spec), encoding="utf-8")


def old_pictures() -> list[str]:
    """List the pictures that are not as they would be drawn now."""
    return [name for name, spec in pictures().items() if rule_pictures.is_old(spec, PICTURES / f"{name}.svg")]
