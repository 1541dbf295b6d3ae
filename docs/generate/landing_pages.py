"""docs/how-it-is-checked.md and docs/adr/README.md: made from the pages that they lead to."""

import re
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[1]
MADE: Final = "<!-- made by `python -m docs.generate.documents --write` -->\n"
_CHECKED: Final = """\
Every rule is compared with three independent witnesses (the first three rows of this table), and every replay of your
logs is compared with your own brokers (the last row):

| compared with | what is compared | result | page |
| --- | --- | --- | --- |
| a second model, written from the text of the rules alone | every row of every table, on generated logs | no \
difference on {witnesses.md|kafka-3.7|logs compared with the naive model} logs per rule | \
[rules](witnesses.md#each-rule) |
| Kafka's released classes, from Maven | follower state after each fetch; ISR and high watermark after each step | no \
difference; fetches compared for `kafka-3.7`: {witnesses.md|kafka-3.7|fetches compared with Kafka's class} | \
[witnesses](witnesses.md#each-rule) |
| recorded brokers, of 0.10.1 to 4.4.0 | the shrinks in their logs with those that a replay makes | \
{witnesses.md|data/samples|drops replayed} of {witnesses.md|data/samples|drops logged} in the samples; older releases \
match less often | [recorded clusters](witnesses.md#recorded-clusters) |
| faults that were planted | the cause of each shrink of simulated fleets | cause right for \
{confusion.md#One fault at a time|all|cause right} with single faults, for {confusion.md#Mixed fleets|all|cause right} \
with mixed ones | [confusion](confusion.md) |
| faults that were injected into real brokers | every recorded shrink, with the fault at that time | a list \
of all shrinks | [recorded shrinks](recorded-shrinks.md) |
| faults that were injected into real brokers | the broker that an answer points at, with all logs and with some \
missing | how often it is right, by kind of fault | [answers](answers.md) |
| replays of recorded brokers | the evidence of `server.log` alone with the verdict of the replay | precision and \
recall by release | \
[server.log alone](server-log-only.md#how-often-the-evidence-is-right) |
| your brokers | each ISR change that they logged with the replayed one, in every `run` and `validate` | table \
`replay_check` | [every night](every-night.md) |

If `validate` says that the replay and your brokers do not match, do not trust the other results of the replay. [What a
replay cannot know](what-a-replay-cannot-know.md) lists the limits that no check removes.

## Speed

`make bench` measured these figures on two cores. *Packed* means in the compact form that a replay reads. Times are only
compared if the results equal those of a hand-written C++ loop.

| what was measured | figure | page |
| --- | ---: | --- |
| replay of 22 rules with tables read and written: time relative to Spark that only reads, sorts and passes the same \
rows | \
{benchmarks.md#From Delta to Delta|isr-batch, 22 rules, relative to Spark that only moves rows|ratio of the best \
rounds} | [from Delta to Delta](benchmarks.md#from-delta-to-delta) |
| replay of 22 rules from rows that are not packed yet: time relative to the same Spark job \
| \
{benchmarks.md#From Delta to Delta|isr-batch, 22 rules, not packed yet, relative to Spark that only moves rows|ratio \
of the best rounds} | [from Delta to Delta](benchmarks.md#from-delta-to-delta) |
| replay of one rule in memory: time relative to a hand-written C++ loop for that rule | \
{benchmarks.md|kernel, one rule (kafka-3.7), per event|ratio} | [benchmarks](benchmarks.md) |
| replay of a billion fetches of an ordinary cluster, all rules | \
{benchmarks.md#Larger runs, older code|a billion packed events, 4 stalls a day, 22 rules, no timelines|wall time \
(s)} s | [larger runs](benchmarks.md#larger-runs-older-code) |
| replay of a billion fetches of a cluster whose followers stall often, all rules | \
{benchmarks.md#Larger runs, older code|930 million packed events, 288 stalls a day, 22 rules, no timelines|wall time \
(s)} s | [larger runs](benchmarks.md#larger-runs-older-code) |
| replay of 200 million rows under 15 rules that writes all timeline rows | \
{benchmarks.md#Larger runs, older code|186 million packed events, 15 rules, all timelines|wall time \
(s)} s | [larger runs](benchmarks.md#larger-runs-older-code) |
| replay of 1.9 million packed events from S3, 22 rules, all timelines: time relative to a lake in a local folder | \
{benchmarks.md#Larger runs, older code|1.9 million packed events, lake on S3 (moto), 22 rules, all timelines|wall time \
relative to that} | [larger runs](benchmarks.md#larger-runs-older-code) |
| `run` on the longest log of that page, all steps | \
{benchmarks.md#Commands|`run` on the long log, 22 rules, all steps|wall time, best (s)} s | \
[commands](benchmarks.md#commands) |
| ingest of a table of your own, in the driver: CPU time per further row | \
{benchmarks.md|ingest of a further row of your own table, in the driver|figure} | \
[benchmarks](benchmarks.md) |
"""
_DECISIONS: Final = """\
Each of these pages has a decision that could have gone another way, the reason for it, and the alternatives that were
rejected. The figures behind decisions are in `docs/measurements`; terms are in the [glossary](../glossary.md).

| | decision |
| --- | --- |
"""


def checked() -> str:
    """Make the page on how the rules are checked; its figures are read from the pages that it links."""
    page = re.sub(r"\{([^{}|]+)\|([^{}|]+)\|([^{}|]+)\}", lambda found: _figure(*found.groups()), _CHECKED)
    return f"# How it is checked\n\n{MADE}\n{page}"


def decisions() -> str:
    """All decisions by number."""
    rows = []
    for file in sorted((DOCS / "adr").glob("0*.md")):
        number, _, title = file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").partition(". ")
        rows.append(f"| {number} | [{title}]({file.name}) |\n")
    return f"# Decisions\n\n{MADE}\n{_DECISIONS}{''.join(rows)}"


def _figure(page: str, row: str, column: str) -> str:
    """A cell of the first table of a page, or below a heading, that has this row and column."""
    name, _, heading = page.partition("#")
    text = (DOCS / name).read_text(encoding="utf-8")
    if heading:
        text = text.partition(f"# {heading}\n")[2]
    columns: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            columns = []
        elif not columns:
            columns = cells
        elif cells[0] == row.strip("`") and column in columns:
            return cells[columns.index(column)]
    message = f"{page} has no row {row!r} with a column {column!r}"
    raise LookupError(message)
