"""Find the broker logs in a folder by their content, and read server.properties and cluster.yaml."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from isr_batch.broker_lines.kinds import GC, KINDS, METADATA, REQUEST, SERVER, STATE_CHANGE
from isr_batch.broker_lines.metadata_log import METADATA_LINES
from isr_batch.errors import NoInputError
from isr_batch.ingest.folder.broker_ids import Candidate, Refused, broker_id_of, broker_ids
from isr_batch.ingest.folder.log_options import LogOptions
from isr_batch.ingest.folder.partition_listing import is_listing
from isr_batch.ingest.folder.settings_files import (
    BROKER_NUMBERS,
    Broker,
    ClusterSettings,
    Properties,
    int_setting,
    number_setting,
    read_cluster_settings,
    read_properties,
)
from isr_batch.ingest.log_files.archives import archive_members, is_archive, member_name
from isr_batch.ingest.log_files.content import Fingerprint, head_of, is_export_file
from isr_batch.ingest.log_files.layouts import KAFKAS_OWN, Layout, UnreadableLayout
from isr_batch.ingest.log_files.limits import BadFileError
from isr_batch.ingest.log_files.look import SeenByLook, look_at

PROPERTIES, SNAPSHOT = "properties", "snapshot"
__all__ = ["GC", "KINDS", "METADATA", "REQUEST", "SERVER", "STATE_CHANGE"]

_ROTATED = r"([.-].+)?"
LOG_NAMES = {
    REQUEST: re.compile(rf"(kafka-)?request\.log{_ROTATED}"),
    SERVER: re.compile(rf"server\.log{_ROTATED}"),
    STATE_CHANGE: re.compile(rf"state-change\.log{_ROTATED}"),
}
"""File names that log4j and log rotation use. With Kafka's default configuration, it is kafka-request.log."""
NOT_NEEDED = re.compile(r"(controller|log-cleaner|kafka-authorizer|zookeeper|connect)\.log([.-].+)?")
"""File names of Kafka's other logs, which are not read."""
GC_NAME = re.compile(r".*(gc|safepoint)\.log.*")
"""File names of logs that the JVM writes about its pauses."""
DOCUMENT = re.compile(r"readme.*|.*\.(md|rst|adoc|html?|pdf|docx?|xlsx?|csv|png|jpe?g|svg|py|sh|sql)", re.IGNORECASE)
"""File names of documents. They are not read, even if they quote log lines."""

METADATA_NAME = re.compile(r".*(metadata|checkpoint).*\.(txt|log|json)(\.gz|\.zst)?")
NOT_LOST = re.compile(rf"cluster\.yaml|.+\.properties|{METADATA_NAME.pattern}")
"""File names of settings and metadata dumps. If such a file cannot be read, this is reported as for a log."""
TEXT_NAME = re.compile(r".*\.(txt|log|out)(\.gz)?|[^.]+")
CLUSTER_FILE = "cluster.yaml"
WHOLE_SECONDS = "requests with time stamps of whole seconds"
_TOO_COARSE = "too coarse to replay: log milliseconds, as in %d{ISO8601}; other lines of the file are read"
LOCAL_TIME = "times that are local by the name of their field or zone, and --time-zone is not given"
HEADLESS = "a table with lines of a log, and without a header"
_NESTED = "archive in an archive", "not read: unpack the outer archive"
_IN_TABLE = rb"(?:TRACE|DEBUG|INFO|WARN|ERROR)\W.{0,200}(?:kafka\.|\[Partition |Completed request:|\[Broker id=)"
SEVERAL_BROKERS = "lines of several brokers, and no field that says whose"
_NO_SOURCE = (
    "only lines that name their broker are read, so no requests: export the host or pod too, or a file per broker"
)
MAX_DEPTH, SHOWN = 6, 3


@dataclass(frozen=True)
class LogFile:
    """Lines of one kind of log in a file. A file with several logs, such as a container's output, has several entries.

    Parameters
    ----------
    kind : str
    broker_id : int or None
        The broker that wrote these lines; None for files without a broker, such as a metadata log.
    name : str
        Path relative to the folder, followed by the source in brackets if the file has several sources.
    path : str
        Path on disk, or in an archive (`isr_batch.ingest.log_files.archives.archive_members`).
    held : Fingerprint, optional
        Fingerprint of the file; None until it is computed. Its number of lines only includes lines of this kind of log.
    layout : Layout
    default : str
        The kind of log of lines that do not show theirs.
    source : str or None
        The container or host that wrote these lines; None for all lines of the file.
    alone : bool
        Whether all lines of this source belong to this kind of log.
    first : bool
        Whether this is the entry with which problems of the whole file are reported.
    """

    kind: str
    broker_id: int | None
    name: str
    path: str
    held: Fingerprint | None = None
    layout: Layout = KAFKAS_OWN
    default: str = SERVER
    source: str | None = None
    alone: bool = True
    first: bool = True


@dataclass
class LogFolder:
    """The broker logs and settings in a folder.

    Three lists name files that are not used, each with the reason: ``refused`` those for quarantine, ``unreadable``
    broker logs in an unknown layout, and ``left_out`` files that are not needed. ``given`` contains the settings in
    ``cluster.yaml``.
    """

    files: list[LogFile] = field(default_factory=list)
    brokers: dict[int, Broker] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    unreadable: list[Refused] = field(default_factory=list)
    left_out: list[Refused] = field(default_factory=list)
    given: ClusterSettings = field(default_factory=ClusterSettings)
    stamp_format: str | None = None

    def of_kind(self, kind: str) -> list[LogFile]:
        """Return the files of one kind of log."""
        return [file for file in self.files if file.kind == kind]

    def seen(self, file: LogFile) -> SeenByLook:
        """Return what the first and last lines of a file show.

        If several containers or hosts wrote the file, only the lines of ``file.source`` are used.
        """
        look = look_at(file.path, file.default, self.stamp_format, self.given.events)
        return look.sources.get(file.source, SeenByLook())


def find_logs(folder: Path, options: LogOptions = LogOptions()) -> LogFolder:  # noqa: B008 frozen
    """Find the broker logs in a folder and its subfolders by their content, and read the settings next to them."""
    found = LogFolder(stamp_format=options.stamp_format)
    root = folder.resolve()
    if _why_not_opened(root, folder / CLUSTER_FILE) is None:
        found.given = read_cluster_settings(folder / CLUSTER_FILE)
    candidates: list[Candidate] = []
    properties: dict[Path, Properties] = {}
    for path in _files_of_folder(found, root, folder, folder, (set(), 0)):
        own_folder = path.parent == folder
        if own_folder and path.name == CLUSTER_FILE:
            _add_file(found, PROPERTIES, path.name, str(path.resolve()))
        elif path.suffix == ".properties":
            _add_properties(found, properties, path, _name_in(folder, path), str(path.resolve()))
        elif own_folder and TEXT_NAME.fullmatch(path.name) and is_listing(path):
            _add_file(found, SNAPSHOT, path.name, str(path.resolve()))
        elif own_folder and METADATA_NAME.fullmatch(path.name):
            _add_file(found, METADATA, path.name, str(path.resolve()))
        else:
            candidates += _candidates(found, folder, path, options, properties)
    _add_candidate_logs(found, folder, candidates, properties, options)
    _find_brokers_of_jvms(found)
    has_logs = any(file.broker_id is not None or file.kind in {METADATA, SNAPSHOT} for file in found.files)
    if not has_logs and not found.unreadable:
        unread = found.refused + found.left_out
        left = "; ".join(
            f"{each.source_file}: {each.reason}{f' ({each.detail})' if each.detail else ''}" for each in unread[:SHOWN]
        )
        raise NoInputError(
            f"No broker logs in {folder}" + (f" ({left}{'; ...' if unread[SHOWN:] else ''})" if left else ""),
            "Expected request.log, server.log or state-change.log of each broker, or what its container printed "
            "(also rotated, .gz, .zst, .xz, .bz2, .zip or .tar.gz); one folder per broker is best.",
        )
    return found


def _files_of_folder(
    found: LogFolder, root: Path, folder: Path, top: Path, visited: tuple[set[tuple[int, int]], int]
) -> Iterator[Path]:
    """Yield the files in a folder and its subfolders. Links are followed, but no folder is visited twice."""
    folders, depth = visited
    try:
        stat = folder.stat()
        if (stat.st_dev, stat.st_ino) in folders:
            name = _printable(_name_in(top, folder))
            found.left_out.append(Refused(name, "a link to a folder that is read anyway", None))
            return
        folders.add((stat.st_dev, stat.st_ino))
        entries = sorted(folder.iterdir(), key=lambda entry: (entry.is_symlink(), entry))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        found.refused.append(Refused(_printable(_name_in(top, folder)), "unreadable folder", error.strerror))
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        is_log = any(name.fullmatch(entry.name) for name in LOG_NAMES.values())
        reason = _why_not_opened(root, entry)
        if reason == "not a file" and entry.is_dir() and not is_log:
            if depth < MAX_DEPTH:
                yield from _files_of_folder(found, root, entry, top, (folders, depth + 1))
        elif reason:
            known = is_log or entry.is_dir() or NOT_LOST.fullmatch(entry.name)
            (found.refused if known else found.left_out).append(Refused(_printable(_name_in(top, entry)), reason, None))
        else:
            yield entry


def _name_in(top: Path, path: Path) -> str:
    """Return the name that a file has in the lake: its path relative to the folder ``top``."""
    return path.name if top in {path, path.parent} else str(path.relative_to(top))


def _candidates(
    found: LogFolder, folder: Path, path: Path, options: LogOptions, properties: dict[Path, Properties]
) -> Iterator[Candidate]:
    """Yield the logs in a file or archive as candidates. Files that are not logs are added to ``found``."""
    paths = [str(path.resolve())]
    if is_archive(path.name):
        try:
            paths = archive_members(paths[0])
        except BadFileError as bad:
            found.refused.append(Refused(_name_in(folder, path), bad.reason, bad.detail))
            return
    for each in paths:
        member = member_name(each)
        name = f"{_name_in(folder, path)}!/{member}" if member else _name_in(folder, path)
        if _printable(name) != name or is_archive(member):
            why = _NESTED if is_archive(member) else ("file name is not text", None)
            found.refused.append(Refused(_printable(name), *why))
        elif name.endswith(".properties"):
            _add_properties(found, properties, folder / name, name, each)
        elif GC_NAME.fullmatch(Path(name).name):
            _add_file(found, GC, name, each)
        elif member and is_listing(each):
            _add_file(found, SNAPSHOT, name, each)
        elif member and is_metadata_dump(each):
            _add_file(found, METADATA, name, each)
        elif refused := _refused_by_name(name, each):
            (found.refused if refused.reason == HEADLESS else found.left_out).append(refused)
        else:
            yield from _sources_of(found, folder, name, each, options)


def _sources_of(found: LogFolder, folder: Path, name: str, path: str, options: LogOptions) -> Iterator[Candidate]:
    """Yield a candidate for each container or host with usable lines; the others are listed in ``found.left_out``."""
    kind = next((kind for kind, pattern in LOG_NAMES.items() if pattern.fullmatch(Path(name).name)), None)
    look = look_at(path, kind or SERVER, options.stamp_format, found.given.events)
    if isinstance(look.layout, Layout) and look.layout.by_writer:
        found.refused.append(Refused(_printable(name), SEVERAL_BROKERS, _NO_SOURCE))
    for source, seen in look.sources.items():
        label = name if source is None else f"{name} [{source.replace('/', '_')}]"
        if kind is None and not seen.of_use:
            reason, detail, listed = "no usable lines", str(look.layout), found.left_out
            if isinstance(look.layout, UnreadableLayout):
                reason, detail = look.layout.reason, look.layout.detail
                listed = found.refused if re.search(_IN_TABLE, head_of(path)) else listed  # a log by its lines
            listed.append(Refused(_printable(label), reason, detail))
            continue
        own_folder = (folder / name).parent
        shown = _printable(_name_in(folder, own_folder)) if own_folder != folder else ""
        yield Candidate(label, own_folder, shown, look, kind or SERVER, kind is not None, source, seen)


def is_metadata_dump(path: str) -> bool:
    """Return whether the first lines of a file show that it is a metadata log decoded by kafka-dump-log.sh."""
    return bool(re.search(METADATA_LINES, head_of(path).decode(errors="replace")))


def _refused_by_name(name: str, path: str) -> Refused | None:
    """Return the reason for not reading a file if its name is that of an unneeded log or a document; otherwise None."""
    if NOT_NEEDED.fullmatch(Path(name).name):
        return Refused(name, "not needed", "it has no lines about fetches or the ISR")
    if DOCUMENT.fullmatch(Path(name).name) and not is_export_file(path):
        if path.endswith(".csv") and re.search(_IN_TABLE, head_of(path)):
            return Refused(name, HEADLESS, "if an export was cut into parts, join them in their order, as with cat")
        return Refused(name, "its name is that of a document", "if it is a log, call it server.log")
    return None


def _add_candidate_logs(
    found: LogFolder, folder: Path, candidates: list[Candidate], properties: dict[Path, Properties], options: LogOptions
) -> None:
    """Find the broker of each candidate. Add the logs whose broker is known, and the remarks, to ``found``."""
    of_folder = {path.parent: own.settings for path, own in properties.items() if broker_id_of(own.settings)}
    for each, owner in zip(candidates, broker_ids(candidates, of_folder), strict=True):
        found.refused += owner.remarks
        broker_id = owner.broker_id
        if broker_id is None:
            continue
        own = of_folder.get(each.folder, {})
        own = own if int_setting(broker_id_of(own)) == broker_id else {}
        if own or broker_id not in found.brokers:
            numbers = (number_setting(own, name) for name in BROKER_NUMBERS)
            found.brokers[broker_id] = Broker(broker_id, *numbers)
        _add_candidate_log(found, each, broker_id, options)
    used = {each.folder for each in candidates}
    for path in sorted(properties):
        broker_id = int_setting(broker_id_of(properties[path].settings))
        if path.parent in used and broker_id is not None and broker_id in found.brokers:
            _add_file(found, PROPERTIES, _name_in(folder, path), properties[path].path, broker_id)


def _add_candidate_log(found: LogFolder, each: Candidate, broker_id: int, options: LogOptions) -> None:
    """Add the logs in a candidate's lines to ``found``, one entry per kind of log."""
    layout = each.look.layout
    if isinstance(layout, UnreadableLayout):
        if layout.reason not in {"empty file", "binary file"} and each.known_name:
            found.unreadable.append(Refused(_printable(each.name), layout.reason, layout.detail))
        layout = KAFKAS_OWN
    if zone := options.zone(broker_id):
        layout = replace(layout, zone=zone)
    if layout.is_local:
        shown = f"{layout.zone_name}: " if layout.zone_name else ""
        advice = f"{shown}--time-zone {broker_id}=+02:00, or yours"
        found.unreadable.append(Refused(_printable(each.name), LOCAL_TIME, advice))
    kinds = [kind for kind in KINDS if each.seen.kinds[kind]] or [each.default]
    if layout.whole_seconds and each.seen.of_use[REQUEST]:
        found.refused.append(Refused(_printable(each.name), WHOLE_SECONDS, _TOO_COARSE))
        kinds = _read_kinds(kinds, layout)
    for number, kind in enumerate(kinds):
        found.files.append(LogFile(
            kind, broker_id, _printable(each.name), each.look.path, None, layout, each.default, each.source,
            alone=len(kinds) == 1 and not layout.whole_seconds, first=number == 0,
        ))  # fmt: skip


def _read_kinds(kinds: Iterable[str], layout: Layout) -> list[str]:
    """Remove request logs from ``kinds`` if their timestamps are whole seconds, which are too coarse for a replay."""
    return [kind for kind in kinds if not (kind == REQUEST and layout.whole_seconds)]


def _find_brokers_of_jvms(found: LogFolder) -> None:
    """Assign each gc.log to the broker of the other logs in its folder, if these are logs of a single broker."""
    of_jvms = found.of_kind(GC)
    found.files = [file for file in found.files if file.kind != GC]
    beside = [(Path(file.name).parent, file.broker_id) for file in found.files if file.broker_id is not None]
    for jvm in of_jvms:
        brokers = {broker_id for folder, broker_id in beside if folder == Path(jvm.name).parent}
        if len(brokers) == 1:
            found.files.append(replace(jvm, broker_id=brokers.pop()))
        else:
            found.left_out.append(
                Refused(jvm.name, "log of a JVM", "its pauses explain shrinks only with server.log in the same folder")
            )


def with_lines(files: Iterable[LogFile], counts: dict[tuple[str, str | None], Counter[str]]) -> list[LogFile]:
    """Divide files by kind of log: return one entry per file and kind, with the number of lines of that kind.

    Files that are not in ``counts`` are returned unchanged.

    Parameters
    ----------
    files : iterable of LogFile
        Files with fingerprints.
    counts : dict
        The number of lines by kind of log. A key is the path of a file and the container or host that wrote the lines,
        or None for all lines of the file.
    """
    listed: list[LogFile] = []
    seen: set[tuple[str, str | None]] = set()
    for file in files:
        key = file.path, file.source
        if key not in counts or key in seen:
            if key not in counts:
                listed.append(file)
            continue
        seen.add(key)
        assert file.held is not None
        kinds = _read_kinds([kind for kind in KINDS if counts[key][kind]], file.layout) or [file.kind]
        listed += [
            replace(file, kind=kind, alone=len(kinds) == 1 and not file.layout.whole_seconds, first=number == 0,
                    held=replace(file.held, lines=counts[key][kind]))
            for number, kind in enumerate(kinds)
        ]  # fmt: skip
    return listed


def _add_file(found: LogFolder, kind: str, name: str, path: str, broker_id: int | None = None) -> None:
    found.files.append(LogFile(kind, broker_id, _printable(name), path, default=kind))


def _add_properties(found: LogFolder, known: dict[Path, Properties], place: Path, name: str, path: str) -> None:
    """Add the settings in a properties file to ``known``, with key ``place``, or an unreadable file to ``found``."""
    try:
        known[place] = read_properties(path)
    except BadFileError as bad:
        found.refused.append(Refused(_printable(name), bad.reason, bad.detail))


def _why_not_opened(root: Path, path: Path) -> str | None:
    """Return the reason for not opening a file, such as a FIFO, on which ``open`` blocks; None if it may be opened."""
    try:
        if _printable(str(path.resolve())) != str(path.resolve()):
            return "file name is not text"
        if not path.resolve().is_relative_to(root):
            return "link out of the folder"
        return None if path.is_file() else "not a file"
    except (OSError, RuntimeError):  # a link that leads to itself
        return "broken link"


def _printable(name: str) -> str:
    """Return a file's name as valid text. Bytes that are not UTF-8 are replaced."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
