"""Write the HTML page with the evidence in server.log, if the logs contain no fetches to replay."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pyarrow as pa

from isr_batch.evidence.answer import answer_table
from isr_batch.evidence.questions import answer_questions, question_rows
from isr_batch.evidence.storms import storms, suspect_in_words
from isr_batch.incidents.colours import SUSPECT_COLOURS
from isr_batch.report.charts import WHOLE, Spec, as_shown, chart_tooltips, time_axis
from isr_batch.report.page import write_page
from isr_batch.shown_times import day_and_time, time_of_day, zone_name

MOST = 500
"""Maximum number of shrinks that the page lists for each cluster."""
DRAWN = 5_000
"""Maximum number of shrinks that the page draws for each cluster."""


def write_evidence_page(clusters: Mapping[str, pa.Table], out: Path, answers: Mapping[str, Sequence[str]]) -> None:
    """Write the HTML page with the evidence in server.log.

    Parameters
    ----------
    clusters : mapping of str to pa.Table
        Rows of table shrink_evidence, by cluster.
    out : Path
        HTML file to write. Viewing it needs no network.
    answers : mapping of str to sequence of str
        Results of `isr_batch.evidence.answer.evidence_answer`, by cluster.
    """
    sections = [
        {
            "name": name, "place": f"shrinks{number}",
            "answer": answers[name],
            "questions": question_rows(answer_questions(rows)), "storms": _storms_on_evidence_page(rows),
            "shrinks": answer_table(rows, MOST), "count": rows.num_rows,
        }
        for number, (name, rows) in enumerate(clusters.items())
    ]  # fmt: skip
    charts = {
        str(section["place"]): _drops_in_time(clusters[str(section["name"])])
        for section in sections
        if section["count"]
    }
    write_page("evidence.html.j2", out, charts, sections=sections, most=MOST, drawn=DRAWN)


def _drops_in_time(rows: pa.Table) -> Spec:
    """Return a chart with a line per leader and replica, on which ticks in the colour of the suspect mark drops."""
    values = [
        {
            "at_ms": row["change_time"].timestamp() * 1000, "pair": f"{row['leader_id']} dropped {row['replica_id']}",
            "partition": f"{row['topic']}-{row['partition_id']}", "strength": row["strength"],
            "suspect": (row["suspect"] or "retry").replace("_", " "), "reason": row["reason"],
        }
        for row in rows.slice(0, DRAWN).to_pylist()
    ]  # fmt: skip
    there = {value["suspect"] for value in values}
    colours = {suspect: colour for suspect, colour in SUSPECT_COLOURS.items() if suspect in there}
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    chart = (
        alt.Chart({"values": as_shown(values)})
        .mark_tick(thickness=2, size=14)
        .encode(
            x=time_axis("at_ms"),
            y=alt.Y("pair:N", title=None),
            color=alt.Color("suspect:N", scale=scale, title="points at"),
            tooltip=chart_tooltips("partition:N", "suspect:N", "strength:N", "reason:N"),
        )
        .properties(width=WHOLE, height=20 * len({value["pair"] for value in values}))
    )
    return dict(chart.to_dict(validate=False))


def _storms_on_evidence_page(rows: pa.Table) -> list[dict[str, Any]]:
    """Return one dict per storm, with the headings of the table of storms as keys."""
    return [
        {
            f"first shrink, {zone_name()}": day_and_time(storm.first),
            f"last caught up, {zone_name()}": time_of_day(storm.since) if storm.since_is_printed else None,
            "replicas": storm.replicas, "partitions": storm.partitions,
            "points at": storm.suspect.replace("_", " "), "broker": storm.broker, "evidence": storm.strength,
            "also at": ", ".join(suspect_in_words(*suspect) for suspect, _ in storm.also),
            "ISR whole after, ms": _whole_evidence_page(storm.whole_after_ms, at_most=storm.whole_at_most),
            "why": storm.reason, "lines": ", ".join(storm.lines),
        }
        for storm in storms(rows)
    ]  # fmt: skip


def _whole_evidence_page(after_ms: int | None, *, at_most: bool) -> str:
    """Format the time in milliseconds after which the ISRs were complete again, or its upper bound (``at_most``)."""
    if after_ms is None:
        return "not in the log"
    return f"at most {after_ms}" if at_most else str(after_ms)
