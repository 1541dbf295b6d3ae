"""Write the report page: collect the numbers, and render the templates."""

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
import vl_convert
from markupsafe import Markup, escape
from pyspark.sql import functions as F

from isr_batch.evidence.answer import answer
from isr_batch.evidence.questions import question_rows
from isr_batch.evidence.with_requests import ask
from isr_batch.evidence.write import read_evidence
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.evidence import SHRINK_EVIDENCE
from isr_batch.report.charts import INK, Spec
from isr_batch.report.pictures import MOST, draw_all
from isr_batch.scoring.broker_check import summary
from isr_batch.scoring.scores import rules_side_by_side

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
"""The version that the charts are written for."""
RULE_COLUMNS = {
    "rule": "rule", "T": "T, ms", "shrinks": "shrinks", "spurious": "spurious", "genuine": "genuine",
    "excluded": "excluded", "unknown": "unknown", "misses": "misses",
    "detection_ms_p99": "99 % detected, ms", "mistake_duration_ms_p50": "mistake lasts, ms",
    "query_accuracy": "time right", "under_min_isr_seconds": "under min ISR, s",
    "high_watermark_stalled_seconds": "standing HW, s",
}  # fmt: skip
"""Columns of ``rule_scores``, and what they are called on the page."""
MATCH_COLUMNS = (
    "cluster_id", "kind", "leader_id", "matched", "missing", "extra", "within_100_ms", "caught_up_within_2_ms",
    "offsets_equal",
)  # fmt: skip
THEME: dict[str, Any] = {
    "background": None,
    # The page's own colour, so that one chart serves light, dark and paper.
    "style": {name: {"fill": INK} for name in ("guide-label", "guide-title", "group-title", "group-subtitle")},
    "axis": {"gridColor": INK, "gridOpacity": 0.12, "domainColor": INK, "tickColor": INK, "domainOpacity": 0.5},
    "header": {"labelColor": INK, "labelOrient": "top", "labelAnchor": "start", "labelFontWeight": "bold"},
    "legend": {"symbolLimit": 40},
    "text": {"fill": INK},
    "view": {"stroke": None},
    "font": "system-ui, sans-serif",
}


def write_report(lake: Lake, out: Path, rules: Sequence[dict[str, Any]] | None = None) -> None:
    """Write the page.

    Parameters
    ----------
    lake : Lake
        With a replay and its comparison with the brokers.
    out : Path
        HTML file; it needs no network.
    rules : sequence of dict, optional
        Of ``rules_side_by_side``, where the caller has it.
    """
    rules = rules or rules_side_by_side(lake)
    matches = summary(lake).rows if lake.has("replay_check") else []
    drawn = draw_all(lake)
    several = len(rules) > len({row["rule"] for row in rules})
    write_page(
        "report.html.j2",
        out,
        {one.picture.place: one.chart for one in drawn if one.chart},
        scope=scope(lake),
        rules=[{title: rounded(row[name]) for name, title in RULE_COLUMNS.items()} for row in rules],
        several=several,
        matches=[{name: row[name] for name in MATCH_COLUMNS} for row in matches],
        matched={status: sum(row[status] for row in matches) for status in ("matched", "missing", "extra", "races")},
        findings=[finding(row, several=several) for row in rules],
        drawn=drawn,
        most=MOST,
        by_lines=_by_lines(lake),
    )


def _by_lines(lake: Lake) -> dict[str, dict[str, Any]]:
    """Say what server.log alone tells of each cluster in which a replica left an ISR, and what request logs add."""
    if not lake.has(SHRINK_EVIDENCE.name):
        return {}
    clusters = lake.read(SHRINK_EVIDENCE.name).select("cluster_id").distinct().orderBy("cluster_id").collect()
    return {
        name: {
            "lines": answer(read_evidence(lake, name), request_log=True),
            "questions": question_rows(ask(lake, name)),
        }
        for (name,) in clusters
    }


def rounded(value: object) -> object:
    """Round a number to four digits for display."""
    if not isinstance(value, float):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004 (no exponents)


def write_page(template: str, out: Path, charts: dict[str, Spec], **content: object) -> None:
    """Render a template to one self-contained HTML page.

    Parameters
    ----------
    template : str
        Name of a template that extends ``page.html.j2``.
    out : Path
        HTML file; it needs no network.
    charts : dict
        Vega-Lite charts by the id of their HTML element.
    **content
        Variables of the template.
    """
    source = files("isr_batch.report")
    templates = jinja2.FunctionLoader(lambda name: (source / name).read_text(encoding="utf-8"))
    page = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, loader=templates)
    page.filters["code"] = lambda text: Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704
    html = page.get_template(template).render(
        charts=_data({place: _themed(chart) for place, chart in charts.items()}),
        scripts=_safe(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)),
        **content,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(html, encoding="utf-8")


def finding(row: dict[str, Any], *, several: bool = False) -> str:
    """Summarise a rule's row in one sentence; with its lag time if the rule has several rows."""
    rule = f"{row['rule']} with T = {row['T'] / 1000:g} s" if several else row["rule"]
    if not row["shrinks"]:
        return f"{rule} makes no shrink" + (f", and misses {row['misses']} failures." if row["misses"] else ".")
    causes = {name: row[name] for name in ("caught_up", "keeping_pace", "slow_leader", "unacked_only") if row[name]}
    counts = ", ".join(
        f"{name.replace('_', ' ')} {count}" for name, count in sorted(causes.items(), key=lambda c: -c[1])
    )
    sentence = f"{rule} makes {row['shrinks']} shrinks, {row['spurious']} of them spurious" + (
        f" ({counts})" if counts else ""
    )
    if row["mistake_duration_ms_p50"] is not None:
        sentence += f", half of them undone within {row['mistake_duration_ms_p50'] / 1000:.3g} s"
    if row["genuine"]:
        sentence += f"; of {row['genuine']} genuine ones 99 % come within {row['detection_ms_p99'] / 1000:.3g} s"
    return sentence + (f"; it misses {row['misses']} failures." if row["misses"] else ".")


def scope(lake: Lake) -> str:
    """Summarise the input in the lake in one sentence."""
    span = lake.read("fetch_log").agg(
        F.sum("run_length").alias("n"),
        F.countDistinct("cluster_id", "topic", "partition_id").alias("partitions"),
        F.min("handled_time").cast("string").alias("first"),
        F.max("last_handled_time").cast("string").alias("last"),
        F.array_sort(F.collect_set("cluster_id")).alias("clusters"),
    ).collect()[0]  # fmt: skip
    if not span["n"]:
        return "This lake has no fetches."
    return (
        f"{span['n']:,} follower fetches of {span['partitions']} partitions in {', '.join(span['clusters'])}, "
        f"from {span['first'][:19]} to {span['last'][:19]} UTC."
    )


def _themed(chart: Spec) -> Spec:
    return {**chart, "config": THEME}


def _data(charts: dict[str, Spec]) -> Markup:
    # Names in it may hold anything: a tag would end the script, and `<!--` would keep it from ending.
    return Markup(json.dumps(charts, separators=(",", ":")).replace("<", "\\u003c"))  # noqa: S704 (JSON without a tag)


def _safe(script: str) -> Markup:
    # Nothing else: `</` is also what a regular expression for `<` ends with.
    return Markup(re.sub(r"</(?=script)", r"<\\/", script, flags=re.IGNORECASE))  # noqa: S704 (a script that we ship)
