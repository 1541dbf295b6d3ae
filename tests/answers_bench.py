"""How often answers are right when some logs are missing: each recording is answered with other logs left out.

Answers are compared with the recording's faults, and their numbers with the tables. Few operators have all logs.
"""

import gzip
import re
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from isr_batch.broker_lines.vendors import apache_release
from isr_batch.incidents.own_shrinks import own_shrinks
from isr_batch.incidents.sentences import cluster_headline
from isr_batch.ingest.broker_logs import ingest_broker_logs
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.replay.replay import replay
from isr_batch.report import write_report
from isr_batch.scoring.broker_check import validate
from isr_batch.scoring.eligible_leaders import write_eligible_leaders
from isr_batch.scoring.late_checks import find_late_checks
from isr_batch.scoring.scores import write_scores
from tests.figures_in_answers import check_figures
from tests.figures_on_page import check_explanations, check_page
from tests.recorded_faults import count_by_kind, drops_of_leaders, recorded_faults
from tests.said_in_answers import unnamed_drops
from udfs.batches.rule_runs import RuleRun
from udfs.rules import rule_of_release

LOGS: Final = ("request", "server", "state-change")
OTHER_RULE: Final = "kip-501-pending"
"""Replayed where all logs are there, for the sentences about a better rule."""

NOT_THERE: Final = 3
"""The broker whose logs are missing in one of the states; the request log of one broker is that of another."""

MOST_EXPLAINED: Final = 4
"""Incidents of each cluster with a drop that is explained, to look up the figures."""


class LogLine(NamedTuple):
    """A log line as `Keep` sees it: log, broker, level, and whether it is in the later half of the recording."""

    log: str
    broker: int
    level: str
    late: bool


_STAMP: Final = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\S* (\w+)")
Keep = Callable[[LogLine], bool]
STATES: Final[dict[str, Keep]] = {
    "all logs": bool,
    "no state-change.log": lambda line: line.log != "state-change",
    "no server.log": lambda line: line.log != "server",
    "no request log": lambda line: line.log != "request",
    "request log of one broker": lambda line: line.log != "request" or line.broker == 1,
    "request log begins in the middle": lambda line: line.log != "request" or line.late,
    "request log ends in the middle": lambda line: line.log != "request" or not line.late,
    "server.log begins in the middle": lambda line: line.log != "server" or line.late,
    "server.log of WARN and ERROR": lambda line: line.log != "server" or line.level in ("WARN", "ERROR", "FATAL"),
    "no logs of one broker": lambda line: line.broker != NOT_THERE,
}
Matrix = dict[str, dict[str, Counter[str]]]
"""By state and kind of fault: right, wrong, untold."""


def with_evidence(recording: Path, keep: Keep, out: Path) -> Path:
    """Copy the lines of a recording's logs that ``keep`` accepts, and the settings of its brokers."""
    times = [
        datetime.fromisoformat(found[1]) for path in recording.glob("broker-*/server.log*") for line in _lines(path)
        if (found := _STAMP.match(line))
    ]  # fmt: skip
    middle = f"{min(times) + (max(times) - min(times)) / 2:%Y-%m-%d %H:%M:%S}"
    for broker in sorted(recording.glob("broker-*")):
        (out / broker.name).mkdir(parents=True)
        for log in LOGS:
            stamp, level, kept = "", "", []
            for line in _lines(next(broker.glob(f"{log}.log*"))):
                stamp, level = found.groups() if (found := _STAMP.match(line)) else (stamp, level)
                if keep(LogLine(log, int(broker.name[-1]), level, stamp >= middle)):
                    kept.append(line)
            if kept:
                (out / broker.name / f"{log}.log").write_text("".join(kept))
        if any((out / broker.name).iterdir()):
            shutil.copy(broker / "server.properties", out / broker.name)
        else:
            (out / broker.name).rmdir()
    return out


def _lines(path: Path) -> list[str]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as stream:
        return stream.readlines()


def no_spark() -> Any:
    """Fail if anything asks for a Spark session: so few logs must be handled without."""
    raise RuntimeError("the logs are few")


def lake_of_logs(folder: Path, root: Path, *others: str) -> Lake:
    """Do what `run` does with the logs of a folder, without Spark; without follower fetches nothing is replayed.

    Parameters
    ----------
    folder, root : Path
        The logs, and where the lake will be.
    *others : str
        Rules to replay, as well as that of the brokers.
    """
    lake = Lake(no_spark, str(root), "bench")
    ingest_broker_logs(lake, folder, "recorded")
    if lake.files("fetch_log"):
        runs = [RuleRun(rule) for rule in (_rule_of_brokers(lake), *others)]
        replay(lake, runs)
        if find_late_checks(lake):
            replay(lake, runs)
        if others:
            write_eligible_leaders(lake, "auto")
            write_scores(lake)
        validate(lake)
    return lake


def _rule_of_brokers(lake: Lake) -> str:
    named = read_columns(lake, "leader_epochs", ["broker_version"])["broker_version"].to_pylist()
    return rule_of_release(apache_release(next(version for version in named if version)))


class Benched(NamedTuple):
    """Counts of right, wrong and missing answers by state of evidence and kind of fault, and the wrong sentences."""

    matrix: Matrix
    wrong: list[str]

    def in_a_line(self, name: str) -> str:
        """Sum up a recording in one line: right / missing / wrong answers in each state."""
        totals = {state: sum(kinds.values(), Counter()) for state, kinds in self.matrix.items()}
        counts = (f"{state} {_cell(counts)}" for state, counts in totals.items())
        return f"{name}: {', '.join(counts)}; {len(self.wrong)} sentences not borne out\n"


def bench(recording: Path, states: Mapping[str, Keep] = STATES) -> Benched:
    """Answer under each state of evidence, and compare with the recording's faults.

    A drop is untold (missing) if only the answers of other states name it.
    """
    faults = recorded_faults(recording / "timeline.jsonl")
    found = Benched({}, [])
    for state, keep in states.items():
        with tempfile.TemporaryDirectory() as place:
            logs = with_evidence(recording, keep, Path(place, "logs"))
            lake = lake_of_logs(logs, Path(place, "lake"), *([OTHER_RULE] if state == "all logs" else []))
            drops = drops_of_leaders(lake).get("recorded", [])
            found.matrix[state] = count_by_kind(faults, drops)
            found.wrong.extend(f"{state}: {sentence}" for sentence in check_figures(lake).wrong)
            if state in ("all logs", "no server.log") and lake.files("fetch_log"):
                page = Path(place, "report.html")
                write_report(lake, page)
                texts = [*check_page(lake, page.read_text(encoding="utf-8")), *check_explanations(lake, MOST_EXPLAINED)]
                found.wrong.extend(f"{state}, in the report or explain: {text}" for text in texts)
            if state == "all logs":
                own = own_shrinks(lake)
                begin = cluster_headline(own, own.clusters[0])[:2]
                found.wrong.extend(f"{begin} do not lead to {drop}" for drop in unnamed_drops(begin, faults, drops))
    every = found.matrix.values()
    all_drops = {kind: max(of.get(kind, Counter()).total() for of in every) for of in every for kind in of}
    for of_state in every:
        for kind, most in all_drops.items():
            of_kind = of_state.setdefault(kind, Counter())
            of_kind["untold"] += most - of_kind.total()
    return found


def added(matrices: Iterable[Matrix]) -> Matrix:
    """Sum the counts of several recordings."""
    whole: Matrix = defaultdict(lambda: defaultdict(Counter))
    for matrix in matrices:
        for state, kinds in matrix.items():
            for kind, counts in kinds.items():
                whole[state][kind] += counts
    return whole


def as_markdown(matrix: Matrix) -> str:
    """Write a Markdown table with a row for each kind of fault and a column for each state: right / missing / wrong."""
    kinds = sorted({kind for of in matrix.values() for kind in of})
    lines = [f"| fault (cells: right / not known / wrong) | {' | '.join(matrix)} |", "| --- |" + " --- |" * len(matrix)]
    for kind in [*kinds, "all"]:
        cells = []
        for of_state in matrix.values():
            counts = sum(of_state.values(), Counter()) if kind == "all" else of_state.get(kind, Counter())
            cells.append(_cell(counts))
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(counts: Counter[str]) -> str:
    return " / ".join(str(counts[what]) for what in ("right", "untold", "wrong"))


def main(recordings: Iterable[Path]) -> None:
    """Print the counts and the wrong sentences of each recording, then the table of all."""
    matrices = []
    for recording in recordings:
        found = bench(recording)
        matrices.append(found.matrix)
        sys.stdout.write(found.in_a_line(recording.name) + "".join(f"  {said}\n" for said in found.wrong))
        sys.stdout.flush()
    sys.stdout.write(as_markdown(added(matrices)))


if __name__ == "__main__":
    main(Path(path) for path in sys.argv[1:])
