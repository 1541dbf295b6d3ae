"""How often server.log alone is right: the tables of docs/server-log-only.md.

``python -m docs.generate.server_log_only LAKE LOGS [LAKE LOGS ...]`` rewrites them: each lake is of a `run` on the
clusters in the folder LOGS. For each cluster, the evidence of server.log alone is compared with the replay of the
brokers' own rule about the same shrinks.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import deltalake

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.evidence.evidence_table import evidence_rows
from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.folder.clusters import find_clusters
from isr_batch.ingest.folder.log_folder import SERVER
from isr_batch.ingest.kafka_logs.evidence_lines import find_evidence
from isr_batch.ingest.kafka_logs.lines_of_interest import read_lines_of_interest
from isr_batch.ingest.kafka_logs.read import survey_logs

PAGE: Final = Path(__file__).parents[1] / "server-log-only.md"
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
_SCORED: Final = " | ".join(
    f"{{0}}, {strength} evidence: {figure}" for strength in ("strong", "any") for figure in ("precision", "recall")
)
SAME_MS = 1_000
"""Greatest distance between a shrink of the replay and a line about it."""

Row = dict[str, Any]


class Pair(NamedTuple):
    """A shrink according to the lines, and the verdict of the replay; None where the replay has no such shrink."""

    release: str
    cluster: str
    evidence: Row
    verdict: Row | None


def pairs(lake: Path, logs: Path) -> Iterator[Pair]:
    """Weigh the server.log of each cluster, and find the replay's verdict on each shrink of a leader."""
    own = {(row["cluster_id"], row["rule"]) for row in _rows(lake, "replay_check", "cluster_id", "rule")}
    releases = {
        row["cluster_id"]: row["broker_version"] for row in _rows(lake, "leader_epochs", "cluster_id", "broker_version")
    }
    judged: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in _rows(lake, "shrink_verdicts"):
        if (row["cluster_id"], row["rule"]) in own:
            judged[_key(row)].append(row)
    for cluster, (folder, _) in find_clusters(logs).items():
        if cluster not in releases:
            continue
        for row in _of_server_logs(folder, cluster):
            if row["made_by"] == "leader" and not row["retry"]:
                yield Pair(releases[cluster], cluster, row, _nearest(row, judged[_key(row)]))


def _of_server_logs(folder: Path, cluster: str) -> list[Row]:
    with log_sql() as sql:
        engine = Here(sql)
        found = survey_logs(engine, folder)
        server_logs = replace(found, files=[file for file in found.files if file.kind == SERVER])
        rows: list[Row] = evidence_rows(
            find_evidence(sql, read_lines_of_interest(engine, sql, server_logs)), cluster
        ).to_pylist()
    return rows


def _rows(lake: Path, table: str, *columns: str) -> list[Row]:
    rows: list[Row] = (
        deltalake.DeltaTable(str(lake / table)).to_pyarrow_table(columns=list(columns) or None).to_pylist()
    )
    return rows


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("cluster_id", "topic", "partition_id", "leader_id", "replica_id"))


def _nearest(row: Row, verdicts: Sequence[Row]) -> Row | None:
    def away_ms(verdict: Row) -> float:
        return float(abs((verdict["change_time"] - row["change_time"]).total_seconds())) * 1000

    best = min(verdicts, key=away_ms, default=None)
    return best if best and away_ms(best) <= SAME_MS else None


def tables(found: Sequence[Pair]) -> str:
    """Markdown: precision and recall by release, and what each suspicion was in truth."""
    by_release: dict[str, list[Pair]] = defaultdict(list)
    for pair in found:
        by_release[pair.release].append(pair)
    releases = sorted(by_release, key=lambda release: [int(part) for part in release.split(".")])
    lines = [
        f"| release | runs | shrinks | judged | spurious by the replay | {_SCORED.format('spurious')} |",
        f"| --- | --- |{' ---: |' * 7}",
    ]
    for release in releases:
        of = by_release[release]
        judged = [pair for pair in of if pair.verdict and pair.verdict["verdict"] in ("spurious", "genuine")]
        truth = [pair.verdict["verdict"] == "spurious" for pair in judged if pair.verdict]
        cells = [
            release, ", ".join(sorted({pair.cluster for pair in of})), len(of), len(judged), sum(truth),
            *_score([pair.evidence["spurious"] == "strong" for pair in judged], truth),
            *_score([pair.evidence["spurious"] != "none" for pair in judged], truth),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += [
        "",
        f"| release | {_SCORED.format('leader')} | follower: precision | follower: recall | link or follower |",
        f"| --- |{' ---: |' * 7}",
    ]
    for release in releases:
        known = [(pair.evidence, _fault(pair.verdict)) for pair in by_release[release] if pair.verdict]
        sure = [(row, fault) for row, fault in known if fault]
        leader, follower = ([fault == who for _, fault in sure] for who in ("leader", "follower"))
        is_leader = [row["suspect"] == "leader" for row, _ in sure]
        cells = [
            release,
            *_score([row["suspect"] == "leader" and row["strength"] == "strong" for row, _ in sure], leader),
            *_score(is_leader, leader),
            *_score([row["suspect"] == "follower" for row, _ in sure], follower),
            sum(row["suspect"] == "link_or_follower" for row, _ in sure),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += [
        "",
        "| server.log points at | strength of the evidence | cause by the replay | shrinks |",
        "| --- | --- | --- | ---: |",
    ]
    counts = Counter(
        (
            pair.evidence["suspect"],
            pair.evidence["strength"],
            pair.verdict["primary_cause"] if pair.verdict else "not in the replay",
        )
        for pair in found
    )
    lines += [f"| {' | '.join(f'`{part}`' for part in what)} | {number} |" for what, number in sorted(counts.items())]
    return "\n".join(lines) + "\n"


def _fault(verdict: Row) -> str | None:
    """Whose fault a shrink was, by the replay."""
    if "slow_leader" in verdict["causes"]:
        return "leader"
    return "follower" if verdict["primary_cause"] in ("follower_stopped", "follower_slow") else None


def _score(said: Sequence[bool], true: Sequence[bool]) -> tuple[str, str]:
    """Precision and recall, with their counts."""
    both = sum(a and b for a, b in zip(said, true, strict=True))
    return _share(both, sum(said)), _share(both, sum(true))


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2f} ({part} of {whole})" if whole else "none"


def write(found: Sequence[Pair]) -> None:
    """Put the tables into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables(found)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    places = list(map(Path, sys.argv[1:]))
    write([pair for lake, logs in zip(places[::2], places[1::2], strict=True) for pair in pairs(lake, logs)])
