"""Numbers out of the lake, onto the page."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
import vl_convert
from markupsafe import Markup
from pyspark.sql import functions as F

from isr_batch.report.charts import shrinks_by_cause, shrinks_in_time
from isr_batch.store import Lake
from isr_batch.summaries import rules_side_by_side
from isr_batch.validate import summary

Rows = list[dict[str, Any]]

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
"""The version that the charts are written for."""
MARKS = 20_000
"""Shrinks drawn one by one at most; a page with more would not open quickly."""


def write_report(lake: Lake, out: Path) -> None:
    """Write the page.

    Parameters
    ----------
    lake : Lake
        With a replay and its comparison with the brokers.
    out : Path
        HTML file; it needs no network.
    """
    shrinks = rules_side_by_side(lake)
    rules = list(dict.fromkeys(row["rule"] for row in shrinks))
    charts = {
        "by-cause": shrinks_by_cause(_by_cause(lake), rules),
        "in-time": shrinks_in_time(_in_time(lake), [*rules, "the brokers"]),
    }
    write_page(
        "report.html.j2",
        out,
        charts,
        scope=scope(lake),
        shrinks=shrinks,
        matches=summary(lake).rows,
        findings=[finding(row) for row in shrinks],
    )


def write_page(template: str, out: Path, charts: dict[str, dict[str, Any]], **content: object) -> None:
    """Write one self-contained page.

    Parameters
    ----------
    template : str
        One that extends ``page.html.j2``.
    out : Path
        HTML file; it needs no network.
    charts : dict
        Vega-Lite by the id of the element that it goes to.
    **content
        What the template asks for.
    """
    source = files("isr_batch.report")
    templates = jinja2.FunctionLoader(lambda name: (source / name).read_text(encoding="utf-8"))
    page = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, loader=templates)
    html = page.get_template(template).render(
        charts={place: _data(chart) for place, chart in charts.items()},
        scripts=_safe(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)),
        **content,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(html, encoding="utf-8")


def finding(row: dict[str, Any]) -> str:
    """One sentence about a rule's row in the table."""
    if not row["shrinks"]:
        return f"{row['rule']} makes no shrink."
    causes = {name: row[name] for name in ("caught_up", "keeping_pace", "slow_leader", "unacked_only") if row[name]}
    told = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sorted(causes.items(), key=lambda c: -c[1]))
    spurious = f"{row['spurious']} of them spurious" + (f" ({told})" if told else "")
    return f"{row['rule']} makes {row['shrinks']} shrinks, {spurious}."


def scope(lake: Lake) -> str:
    """What the lake holds, in a sentence."""
    span = lake.read("fetch_log").agg(
        F.sum("run_length").alias("n"),
        F.countDistinct("cluster_id", "topic", "partition_id").alias("partitions"),
        F.min("handled_time").cast("string").alias("first"),
        F.max("last_handled_time").cast("string").alias("last"),
        F.array_sort(F.collect_set("cluster_id")).alias("clusters"),
    ).collect()[0]  # fmt: skip
    return (
        f"{span['n']:,} fetches of followers on {span['partitions']} partitions of {', '.join(span['clusters'])}, "
        f"from {span['first'][:19]} to {span['last'][:19]} UTC."
    )


def _by_cause(lake: Lake) -> Rows:
    rows = lake.read("shrink_verdicts").groupBy("rule", F.col("primary_cause").alias("cause"))
    return [row.asDict() for row in rows.agg(F.count("*").alias("shrinks")).collect()]


def _in_time(lake: Lake) -> Rows:
    follower = F.concat_ws("-", "topic", "partition_id")
    time = F.date_format("change_time", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias("time")
    named = F.concat(F.lit("broker "), "replica_id", F.lit(" of "), follower).alias("follower")
    replayed = lake.read("shrink_verdicts").select(
        F.col("cluster_id").alias("cluster"), "rule", F.col("primary_cause").alias("cause"), time, named
    )
    logged = (
        lake.read("observed_isr_changes").where("kind = 'shrink'")
        .select(
            F.col("cluster_id").alias("cluster"), F.lit("the brokers").alias("rule"),
            F.when(F.col("made_by") == "controller", "controller").otherwise("unknown").alias("cause"), time, named,
        )
    )  # fmt: skip
    return [row.asDict() for row in replayed.unionAll(logged).orderBy("time").limit(MARKS).collect()]


def _data(chart: dict[str, Any]) -> Markup:
    # Names in it may hold anything: a tag would end the script, and `<!--` would keep it from ending.
    return Markup(json.dumps(chart).replace("<", "\\u003c"))  # noqa: S704 (JSON without a tag)


def _safe(script: str) -> Markup:
    return Markup(script.replace("</", "<\\/"))  # noqa: S704 (a script that we ship)
