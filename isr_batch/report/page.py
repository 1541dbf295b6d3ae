"""Write the report page: query the lake for its contents, and render its templates."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
import pyarrow.compute as pc
import vl_convert
from markupsafe import Markup, escape

from isr_batch.evidence.answer import evidence_answer
from isr_batch.evidence.notes_of_brokers import notes_of_brokers
from isr_batch.evidence.questions import answer_questions, question_rows
from isr_batch.evidence.questions_with_requests import collect_with_requests
from isr_batch.incidents.colours import FOLLOWER_LINES, PHASE_COLOURS, SILENT, VERDICT_COLOURS
from isr_batch.incidents.own_shrinks import OwnShrinks, Row, ask_own_shrinks, own_shrinks
from isr_batch.incidents.rule_choices import alike_choices, name_of_choice, read_scores_for_choices
from isr_batch.incidents.sentences import CALLED, clusters_worst_first
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_sql import LakeSql
from isr_batch.lake.tables.evidence import SHRINK_EVIDENCE
from isr_batch.own_files import is_only_ours
from isr_batch.phrases import rounded
from isr_batch.printable import printable_lines
from isr_batch.report.brokers_on_page import fetches_between_brokers
from isr_batch.report.charts import INK, Spec
from isr_batch.report.first_screen import first_screens
from isr_batch.report.leader_deaths import leader_deaths_sentences
from isr_batch.report.pictures import MOST, OF_OWN_RULE, draw_pictures
from isr_batch.report.shrinks_on_page import shrinks_on_page
from isr_batch.rule_names import rule_names_by_release
from isr_batch.shown_times import time_text, zone_name

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
"""Version of Vega-Lite for which Altair writes the charts."""
RULE_COLUMNS = {
    "T": "lag time, ms", "shrinks": "shrinks", "spurious": "spurious", "early": "of these early",
    "genuine": "genuine",
    "excluded": "excluded", "unknown": "unknown", "misses": "misses",
    "detection_ms_p99": "99 % detected, ms", "mistake_duration_ms_p50": "mistake lasts, ms",
    "query_accuracy": "query accuracy by lag", "query_accuracy_by_blame": "query accuracy by blame",
    "under_min_isr_seconds": "under min ISR, s",
    "offline_if_leader_dies_seconds": "offline if leaders died, s", "lost_records": "acknowledged records lost then",
    "high_watermark_stalled_seconds": "high watermark stalled, s",
    "acks_all_waits_1s_seconds": "acks=all would wait over 1 s, s",
}  # fmt: skip
"""Columns of table ``rule_scores`` that the table of rules shows, with their headings."""
CHECKED = (
    "cluster_id", "leader_id", "kind", "status", "note", "time_error_ms", "last_caught_up_error_ms",
    *(
        f"{who}_{what}" for who in ("observed", "replayed")
        for what in ("follower_log_end_offset", "leader_log_end_offset", "high_watermark")
    ),
)  # fmt: skip
MATCH_COLUMNS = (
    "kind", "leader_id", "matched", "missing", "extra", "unknown", "races", "within_100_ms", "caught_up_within_2_ms",
    "offsets_equal",
)  # fmt: skip
THEME: dict[str, Any] = {
    "background": None,
    # Text in charts has the page's text colour, so that the same chart fits light mode, dark mode and paper.
    "style": {name: {"fill": INK} for name in ("guide-label", "guide-title", "group-title", "group-subtitle")},
    "axis": {"gridColor": INK, "gridOpacity": 0.12, "domainColor": INK, "tickColor": INK, "domainOpacity": 0.5},
    "header": {"labelColor": INK, "labelOrient": "top", "labelAnchor": "start", "labelFontWeight": "bold"},
    "legend": {"symbolLimit": 40},
    "text": {"fill": INK},
    "view": {"stroke": None},
    "font": "system-ui, sans-serif",
}


def write_report(
    lake: Lake, out: Path, own: OwnShrinks | None = None, warnings: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Write the HTML report on a lake.

    Parameters
    ----------
    lake : Lake
        A lake that was replayed, and whose replay was compared with the brokers' own ISR changes.
    out : Path
        HTML file to write. Viewing it needs no network.
    own : OwnShrinks, optional
        Result of `own_shrinks` for this lake. By default, it is computed.
    warnings : mapping of str to sequence of str, optional
        Warnings to show for each cluster, from `isr_batch.ingest.folder.folder_warnings.folder_warnings`.
    """
    own = own or own_shrinks(lake)
    scores = read_scores_for_choices(lake)
    matches: list[Row] = ask_own_shrinks(
        "matches", {}, replay_check=read_columns(lake, "replay_check", CHECKED)
    ).to_pylist()
    clusters = [one["cluster_id"] for one in clusters_worst_first(own)]
    rules = {
        name: rule_names_by_release(row["rule"] for row in scores if row["cluster_id"] == name) for name in clusters
    }
    ran = {one["cluster_id"]: one["rule"] or own.rule for one in own.clusters}
    with LakeSql(lake) as sql:
        drawn = draw_pictures(sql, {name: ran[name] for name in clusters})
        found = shrinks_on_page(sql, own, rules)
        covered = page_scope(sql)
        fetches = fetches_between_brokers(sql)
        deaths = leader_deaths_sentences(
            sql, {one["cluster_id"]: one | {"rule": ran[one["cluster_id"]]} for one in own.clusters}
        )
    screens = first_screens(own, scores, found, fetches)
    for one in screens:
        one["notes"] += [said for said in (warnings or {}).get(one["name"], ()) if said not in one["notes"]]
    write_page(
        "report.html.j2",
        out,
        {one.place: one.chart for of_cluster in drawn.values() for one in of_cluster if one.chart},
        scope=covered,
        called=CALLED,
        own_pictures=OF_OWN_RULE,
        screens=screens,
        rules={name: _rules([row for row in scores if row["cluster_id"] == name]) for name in clusters},
        several=len({(row["rule"], row["params_json"]) for row in scores}) > len({row["rule"] for row in scores}),
        by_leader={
            name: [{column: row[column] for column in MATCH_COLUMNS} for row in matches if row["cluster_id"] == name]
            for name in clusters
        },
        deaths=deaths,
        drawn=drawn,
        most=MOST,
        by_lines=dict.fromkeys(clusters) | _by_lines(lake),
    )


def _rules(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return the table of rules, with one row for each group of rule runs that decide alike."""
    return [
        {"rule": ", ".join(name_of_choice(row, rows) for row in group)}
        | {title: _least_and_most([row[name] for row in group]) for name, title in RULE_COLUMNS.items()}
        for group in alike_choices(rows)
    ]


def _least_and_most(values: Sequence[Any]) -> object:
    """Format the range of the known values, such as "1 to 5"; None if no value is known."""
    shown = [rounded(value) for value in sorted(value for value in values if value is not None)]
    if not shown:
        return None
    return shown[0] if shown[0] == shown[-1] else f"{shown[0]} to {shown[-1]}"


def _by_lines(lake: Lake) -> dict[str, dict[str, Any]]:
    """Return, by cluster, the lines about its rows in shrink_evidence, and the answered questions."""
    rows = read_columns(lake, SHRINK_EVIDENCE.name, SHRINK_EVIDENCE.column_names)
    rows = rows.sort_by([(name, "ascending") for name in ("change_time", "source_file", "source_line", "replica_id")])
    clusters = sorted(set(rows["cluster_id"].to_pylist()))
    known = collect_with_requests(lake, clusters) if clusters else {}
    said = {}
    for name in clusters:
        of_cluster = rows.filter(pc.equal(rows["cluster_id"], name))
        said[name] = {
            "lines": evidence_answer(of_cluster, request_log=True, notes=notes_of_brokers(lake, name, of_cluster)),
            "questions": question_rows(answer_questions(of_cluster, known[name])),
        }
    return said


def write_page(template: str, out: Path, charts: dict[str, Spec], **content: object) -> None:
    """Render a template to a self-contained HTML page.

    Parameters
    ----------
    template : str
        Name of a template that extends ``page.html.j2``.
    out : Path
        HTML file to write. Viewing it needs no network.
    charts : dict
        Vega-Lite specifications, by the id of the HTML element in which they are drawn.
    **content
        Variables of the template.
    """
    source = files("isr_batch.report")
    templates = jinja2.FunctionLoader(lambda name: (source / name).read_text(encoding="utf-8"))
    page = jinja2.Environment(
        autoescape=True, finalize=_shown_on_page, undefined=jinja2.StrictUndefined, loader=templates
    )
    page.filters["code"] = lambda text: Markup(  # noqa: S704 (nothing but our tags is not escaped)
        re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(printable_lines(text))))
    )
    html = page.get_template(template).render(
        zone=zone_name(),
        verdict_colours=VERDICT_COLOURS,
        silent_colour=SILENT,
        follower_colours=FOLLOWER_LINES,
        phase_colours=PHASE_COLOURS,
        charts=_data_of_page({place: {**chart, "config": THEME} for place, chart in charts.items()}),
        scripts=_safe_on_page(_vega()),
        **content,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(html, encoding="utf-8")


def page_scope(sql: LakeSql) -> str:
    """Return a sentence with the number of fetches in the lake, their partitions, clusters, and period."""
    rows = sql("""
        SELECT
          cluster_id, CAST(sum(run_length) AS BIGINT) AS fetches, count(DISTINCT (topic, partition_id)) AS partitions,
          min(unix_micros(handled_time)) AS first_us, max(unix_micros(last_handled_time)) AS last_us
        FROM fetch_log GROUP BY cluster_id ORDER BY cluster_id
    """)
    if not rows:
        return "This lake has no fetches."
    fetches, partitions = (sum(row[name] for row in rows) for name in ("fetches", "partitions"))
    first, last = time_text(min(row["first_us"] for row in rows)), time_text(max(row["last_us"] for row in rows))
    clusters = ", ".join(row["cluster_id"] for row in rows)
    return (
        f"{fetches:,} follower fetches of {partitions} partitions in {clusters}, from {first} to {last} {zone_name()}."
    )


def _vega() -> str:
    """Return the JavaScript of Vega, and cache it in the user's home, because bundling it takes long."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "isr-batch"
    kept = folder / f"vega-{version('vl-convert-python')}-{VEGA_LITE}.js"
    try:
        if is_only_ours(folder) and is_only_ours(kept):
            return kept.read_text(encoding="utf-8")
    except OSError:
        pass
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = kept.with_name(f"{kept.name}.{os.getpid()}")
        unfinished.touch(mode=0o600)
        unfinished.write_text(script, encoding="utf-8")
        unfinished.replace(kept)
    except OSError:  # a read-only home directory must not prevent the report
        pass
    return str(script)


def _data_of_page(charts: dict[str, Spec]) -> Markup:
    """Serialise the charts as JSON that is safe inside a script element."""
    # Names may contain anything: a closing tag would end the script element, `<!--` would prevent it from ending.
    return Markup(json.dumps(_shown_on_page(charts), separators=(",", ":")).replace("<", "\\u003c"))  # noqa: S704 (JSON without a tag)


def _shown_on_page(value: object) -> object:
    """Escape unprintable characters (`isr_batch.printable`) in all strings of a value, also in nested ones."""
    if isinstance(value, str):
        return value if isinstance(value, Markup) else printable_lines(value)
    if isinstance(value, dict):
        return {name: _shown_on_page(part) for name, part in value.items()}
    return [*map(_shown_on_page, value)] if isinstance(value, list | tuple) else value


def _safe_on_page(script: str) -> Markup:
    """Escape ``</script`` in a script, so that it cannot end its HTML element early."""
    # Only `</script` is changed, because `</` can also be the end of a regular expression that matches `<`.
    return Markup(re.sub(r"</(?=script)", r"<\\/", script, flags=re.IGNORECASE))  # noqa: S704 (a script that we ship)
