"""Pages that are made: tables, rules with their pictures, commands, settings, exit codes, and two landing pages.

``python -m docs.generate.documents --write`` does.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from textwrap import fill
from typing import Final

from docs.generate import landing_pages, reference, rule_pictures, study_page
from docs.generate.landing_pages import DOCS, MADE
from docs.generate.rule_stories import seen
from isr_batch.lake.sql_files import sql_texts
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.evidence import BROKER_TROUBLES, SHRINK_EVIDENCE
from isr_batch.lake.tables.inputs import (
    FETCH_SEGMENTS,
    INGESTED_FILES,
    INPUT_TABLES,
    KEPT_LINES,
    PLANTED_FAULTS,
    SESSION_ENDS,
)
from isr_batch.lake.tables.leaders import BROKER_DAYS
from isr_batch.lake.tables.outputs import OUTPUT_TABLES
from isr_batch.lake.tables.own_tables import OWN_TABLES
from isr_batch.lake.tables.timelines import VIEWS
from isr_batch.replay.kernel_cache import keep_compiled
from udfs.rules import COMMON_PARAMS, REGISTRY, Param, Rule

PICTURES: Final = DOCS / "images" / "rules"
_TABLES_SAID: Final = """\
A lake is a set of Delta tables, `LAKE/<table>` or in a schema of a catalog, which any engine that reads Delta can read.
`isr-batch sql --lake LAKE "DESCRIBE shrink_verdicts"` prints the columns of a table, and [questions](sql-cookbook.md)
has queries with their results. The main tables are:

| table | one row is |
| --- | --- |
| `isr_changes` | a replica that a rule removes from the ISR or adds to it |
| `shrink_verdicts`, view `spurious_shrinks` | a judged shrink: true lag, causes, where the delay was, \
when it was reverted |
| `rule_scores`, `rule_scores_by_broker` | the scores of a rule: mistakes and their duration, detection time, \
accuracy, time below min ISR, records at risk |
| `rule_disagreements` | a shrink that some rules make and others do not, with each rule's cause |
| `eligible_leaders`, view `leader_death_by_rule_and_day` | a period with a replica outside the ISR under a rule: the \
broker that could lead if the leader died, and the records that it would lack |
| `controller_records`, view `elections_by_day` | a record of the metadata log that affects which replicas may lead \
(KIP-966) |
| `sweep_scores`, `sweep_advice` | the scores of a parameter set; the recommended lag time, and how certain it is |
| `replay_check` | an ISR change that the brokers logged and the replayed one that matches it, \
or one without the other |
| `coverage` | a period for which a broker's logs are complete; outside it nothing is known |
| `quarantine` | an input line or file that was refused, and why; if `rows_kept`, a line that was read but is doubtful |

`*_time` is UTC with microseconds, `*_ms` are milliseconds (epoch or duration), `*_us` microseconds; offsets are record
offsets. Columns that are never null are marked with *.
"""
_RULES_SAID: Final = """\
This page describes all rules: first those of Kafka's releases, then proposals for Kafka, then rules of other systems
and forks, then reference rules, each group in chronological order. The reference rule `true-lag` knows the real lag of
each follower, which no broker can; all other rules are compared with it. `isr-batch rules show kafka-3.7` prints the
code of a rule's functions, and [add a rule](add-a-rule.md) shows how to add one.

On this page, a follower is *dead* if it has stopped fetching. Whatever the rule, the controller also removes a broker
from the ISR once its session has expired: with KRaft after `broker.session.timeout.ms` (9 s by default), with ZooKeeper
after `zookeeper.session.timeout.ms` (6 s by default, 18 s since 2.5). In the pictures, no session expires.
"""
_ALL_SAID: Final = """\
In the picture, every rule replays the same request log, in which one follower has seven troubles, one after the other.
Each bar is a time in which the follower is outside the ISR. Its colour is the [cause](verdicts.md) of the shrink:
orange to brown if the shrink is spurious (the follower should have stayed in the ISR), blue if it is genuine.

![When each rule drops the same follower](images/rules/all.svg)

1. A burst: 10,000 records are appended at once, and the follower needs six seconds to fetch them.
2. One batch behind: there is an append every 100 ms, and the follower fetches as often. Each of its fetches is from the
offset at which the log ended at its previous fetch.
3. Idle: there is no append, and the follower has every record. The leader responds to its fetch only after 22 s.
4. Dead: the follower stops at 66 s and is back at 97 s. It lacks no record until an append at 84 s.
5. No records: the follower fetches every second, but the responses have no records for 28 s.
6. Silent leader: the leader handles no request for 13 s. When it wakes up, it handles an append, then its check, then
the fetch that waited.
7. Slow leader: the leader needs 22 s to read its log for a fetch from the log end.

From 131 s on, during troubles 6 and 7, all producers use acks=all. The lag time is 10 s.

Some rules drop the same followers, but differ in when consumers can see new records. A second log shows this
difference. It has two followers (brokers 2 and 3), a lag time of 10 s, and min.insync.replicas = 2. The controller
needs 3 s for each ISR change. The log has three troubles:

1. Broker 3 is dead from 5 to 36 s. All producers use acks=all; from 10 to 30 s they wait for a response and append
nothing.
2. The controller removes broker 3 at 50.5 s because it is shutting down. Broker 3 still fetches until 54 s. From 50 s
on, producers use acks=1.
3. Broker 2 is dead as well, from 75 to 112 s, so that the leader is alone in the ISR, unless the rule keeps broker 2.

The picture of each rule below is a replay of one of these two logs. A dashed line is a limit of the rule, and each tick
on it is an ISR check. The curve is the follower's lag as the rule computes it; for `true-lag` it is the real lag.

In the tables of parameters, *true: 2.4.0 to 2.6.3* means that with the value `true`, the rule decides as these releases
did.
"""


_STATUS: Final = {
    "proposed": "Proposed for Kafka, in no release",
    "rejected": "Proposed for Kafka and rejected, in no release",
    "elsewhere": "A rule of another system or of a fork of Kafka, in no release of Kafka",
    "reference": "A reference to compare other rules with, in no release of Kafka",
}
"""What `Rule.in_force` of a rule without a release means."""


def tables() -> str:
    """Every table with its columns and constraints, and the views."""
    return "\n".join([
        "# Tables and views\n",
        MADE,
        _TABLES_SAID,
        "## What an ingest writes\n",
        *map(_table, (*INPUT_TABLES, SHRINK_EVIDENCE, BROKER_TROUBLES)),
        *map(_table, (INGESTED_FILES, KEPT_LINES, SESSION_ENDS, *OWN_TABLES)),
        *map(_table, (BROKER_DAYS, FETCH_SEGMENTS, PLANTED_FAULTS)),
        "## What a replay and the commands after it write\n",
        *map(_table, OUTPUT_TABLES),
        "## Views\n",
        *(
            _table(VIEWS[name][0]) if name in VIEWS else f"### {name}\n\n{_comment(text)}\n"
            for name, text in sql_texts().items()
        ),
    ])  # fmt: skip


def _table(table: Table) -> str:
    lines = [f"### {table.name}\n", f"{table.comment}.\n", "| column | type | what |", "| --- | --- | --- |"]
    lines += [
        f"| `{column.name}`{'' if column.nullable else ' *'} | {column.type} | {_cell(column.comment)} |"
        for column in table.columns
    ]
    if table.partitioned_by:
        lines.append(f"\nPartitioned by {', '.join(f'`{name}`' for name in table.partitioned_by)}.")
    if table.constraints:
        lines += ["\nConstraints:\n", *(f"- `{condition}`" for condition in table.constraints.values())]
    return "\n".join(lines) + "\n"


def _comment(sql: str) -> str:
    return " ".join(line.removeprefix("--").strip() for line in sql.splitlines() if line.startswith("--"))


def rules() -> str:
    """Every rule's story and its parameters."""
    return "\n".join([
        "# Rules\n",
        MADE,
        _RULES_SAID,
        _ALL_SAID,
        *map(_rule, REGISTRY.values()),
        "## Parameters of every rule\n",
        *_params(COMMON_PARAMS),
        "",
    ])  # fmt: skip


def _rule(rule: Rule) -> str:
    status = _STATUS.get(rule.in_force, f"In force in Kafka {rule.in_force}")
    lines = [f"## {rule.id}\n", f"{status}. Source: {rule.source}.\n", rule.doc.strip() + "\n"]
    lines.append(f"{fill(rule.series, 110)}\n")
    lines.append(f"![{rule.id} in one of the two logs](images/rules/{rule.id}.svg)\n")
    if says := seen(rule.id).says:
        numbers = "(the numbers of troubles are [explained above](#rules))"
        lines.append(f"{fill(f'**In the picture** {numbers}. {_numbered(says)}', 110)}\n")
    return "\n".join([*lines, *_params(rule.params), ""])


def _numbered(says: str) -> str:
    """Say what numbers in brackets are: "(1)" is "(trouble 1)", "(3 to 7)" is "(troubles 3 to 7)"."""
    return re.sub(
        r"\((\d)(?:(, | to )(\d))?\)",
        lambda found: (
            f"(troubles {found[1]}{found[2].replace(',', ' and')}{found[3]})" if found[3] else f"(trouble {found[1]})"
        ),
        says,
    )


def _params(params: Mapping[str, Param]) -> Iterator[str]:
    if params:
        yield from (
            "| parameter | values | default | meaning of the parameter, or of its values |",
            "| --- | --- | --- | --- |",
        )
    for name, param in params.items():
        default = "not set" if param.default is None else param.name_of(param.default)
        values = ", ".join(f"`{choice}`" for choice in param.choices) or "a number"
        yield f"| `{name}` | {values} | {default} | {_cell(param.says)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


PAGES: Final[dict[str, Callable[[], str]]] = {
    "tables.md": tables,
    "rules.md": rules,
    "commands.md": reference.commands,
    "settings.md": reference.settings,
    "exit-codes.md": reference.exit_codes,
    "how-it-is-checked.md": landing_pages.checked,
    "adr/README.md": landing_pages.decisions,
    "study.md": study_page.page,
}


def stale() -> list[str]:
    """Pages and pictures that are not as they would be made now."""
    pages = [
        name
        for name, made in PAGES.items()
        if not (DOCS / name).exists() or (DOCS / name).read_text(encoding="utf-8") != made()
    ]
    return [*pages, *rule_pictures.old(PICTURES), *study_page.old_pictures()]


if __name__ == "__main__":
    keep_compiled()
    if sys.argv[1:] == ["--write"]:
        for name, made in PAGES.items():
            (DOCS / name).write_text(made(), encoding="utf-8")
        rule_pictures.write(PICTURES)
        study_page.write_pictures()
    elif stale():
        sys.exit(f"not up to date: {', '.join(stale())}; `python -m docs.generate.documents --write` makes them")
