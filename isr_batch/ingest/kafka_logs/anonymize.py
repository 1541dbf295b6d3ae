"""Copy a folder of logs with made-up names (command `anonymize`). Lines that an ingest skips lose their text."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.forms import LAG_TIME, MIN_ISR
from isr_batch.broker_lines.kinds import BROKER_KINDS, GC, METADATA, REQUEST, SERVER, STATE_CHANGE, LogKindFinder
from isr_batch.ingest.folder.lines import Selection, lines_of_file
from isr_batch.ingest.folder.listed_observers import EVERY
from isr_batch.ingest.folder.log_folder import SNAPSHOT, LogFile, LogFolder
from isr_batch.ingest.folder.settings_files import FETCH_WAIT, FETCHERS, OBSERVERS
from isr_batch.ingest.kafka_logs.lines_of_interest import read_as_log_lines
from isr_batch.ingest.log_files.made_up_names import MadeUpNames

_LOGGERS: Final = {REQUEST: "kafka.request.logger", SERVER: "kafka.server.Others", STATE_CHANGE: "state.change.logger"}
_HEAD: Final = r"^(?P<head>\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d{3}\] [A-Z]+ )"
_NAMES: Final = {METADATA: "metadata.txt", SNAPSHOT: "topics.txt", GC: "gc.log"}


def find_names(found: LogFolder, names: MadeUpNames) -> None:
    """Add to ``names`` all names in a folder's logs, so that `write_copy` replaces them."""
    for file in _logs_to_copy(found):
        for lines, kept in _lines_to_copy(file):
            for line, is_kept in zip(lines.to_pylist(), kept.to_pylist(), strict=True):
                if is_kept:
                    names.find(line)


def write_copy(found: LogFolder, names: MadeUpNames, out: Path) -> int:
    """Write a copy of the logs in which names are replaced by made-up ones.

    Parameters
    ----------
    found : LogFolder
        The logs to copy. Timestamps are written in UTC.
    names : MadeUpNames
        The names to replace, which `find_names` has collected from these logs.
    out : Path
        Folder of the copy, which must not exist.

    Returns
    -------
    int
        Number of lines written.
    """
    out.mkdir(parents=True)
    written, count = Counter[Path](), 0
    for file in _logs_to_copy(found):
        folder = out if file.broker_id is None else out / f"broker-{file.broker_id}"
        path = folder / _NAMES.get(file.kind, f"{file.default}.log")
        number, written[path] = written[path], written[path] + 1
        path = path.with_name(f"{path.name}.{number}") if number else path
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8") as stream:
            for lines, kept in _lines_to_copy(file):
                for line, is_kept in zip(lines.to_pylist(), kept.to_pylist(), strict=True):
                    stream.write(f"{names.replaced(line) if is_kept else line}\n")
                count += len(lines)
    _write_settings_of_copy(found, names, out)
    return count


def _logs_to_copy(found: LogFolder) -> Iterator[LogFile]:
    """Yield each file to copy once, even if it has an entry for each of several logs."""
    seen = set()
    for file in found.files:
        if file.kind in {*BROKER_KINDS, *_NAMES} and (file.path, file.source) not in seen:
            seen.add((file.path, file.source))
            yield file


def _lines_to_copy(file: LogFile) -> Iterator[tuple[pa.StringArray, pa.BooleanArray]]:
    """Yield batches of lines in Kafka's own layout, each with a mask of the lines whose text is kept.

    The text of a line is kept if an ingest uses it. From other lines, only the timestamp and the level are kept.
    """
    of_broker = file.kind in BROKER_KINDS
    kinds = LogKindFinder(file.default) if of_broker else None
    for batch in lines_of_file(
        file.path, file.name, file.broker_id, selected=Selection(file.layout, file.default, None, file.source)
    ):
        values = pc.fill_null(batch["value"], "")
        if kinds is None:
            log = pa.repeat(pa.scalar(file.kind), len(values))
        else:
            log = pa.array(BROKER_KINDS).take(pa.array(kinds.codes(values)))
        if file.kind == SNAPSHOT:
            yield values, pc.match_substring(values, "Topic")
            continue
        read = read_as_log_lines(batch.append_column("log", log))
        kept = pc.or_(
            pc.is_valid(read["message"]),
            pc.and_(pc.equal(log, REQUEST), pc.match_substring(values, "Completed request:")),
        )
        if file.layout.whole_seconds:  # an ingest does not read requests without milliseconds
            kept = pc.and_(kept, pc.not_equal(log, REQUEST))
        kept = pc.fill_null(kept, False)
        yield pc.if_else(kept, values, _anonymized_empty_lines(values, log)), kept


def _anonymized_empty_lines(values: pa.StringArray, log: pa.StringArray) -> pa.StringArray:
    """Cut lines to timestamp and level, followed by the words "left out" and a logger that shows the kind of log."""
    head = pc.struct_field(pc.extract_regex(values, _HEAD), "head")
    loggers = pa.array([f"left out ({_LOGGERS.get(each, '')})" for each in log.to_pylist()])
    return pc.fill_null(pc.binary_join_element_wise(head, loggers, ""), "")


def _write_settings_of_copy(found: LogFolder, names: MadeUpNames, out: Path) -> None:
    """Write cluster.yaml and one server.properties per broker, with only the settings that a replay needs."""
    given = found.given
    stated = {"release": given.release, LAG_TIME: given.replica_lag_time_max_ms, MIN_ISR: given.min_insync_replicas,
              FETCHERS: given.num_replica_fetchers, FETCH_WAIT: given.replica_fetch_wait_max_ms}  # fmt: skip
    listed = {names.replaced(f"topic {name}").removeprefix("topic "): ids for name, ids in given.observers.items()}
    stated |= {OBSERVERS: json.dumps(listed.get(EVERY, listed)) if listed else None}
    if lines := [f"{name}: {value}\n" for name, value in stated.items() if value is not None]:
        (out / "cluster.yaml").write_text("".join(lines))
    for broker in found.brokers.values():
        own = {LAG_TIME: broker.replica_lag_time_max_ms, MIN_ISR: broker.min_insync_replicas,
               FETCHERS: broker.num_replica_fetchers, FETCH_WAIT: broker.replica_fetch_wait_max_ms}  # fmt: skip
        folder = out / f"broker-{broker.broker_id}"
        if folder.is_dir() and any(value is not None for value in own.values()):
            text = "".join(f"{name}={value}\n" for name, value in own.items() if value is not None)
            (folder / "server.properties").write_text(f"node.id={broker.broker_id}\n{text}")
