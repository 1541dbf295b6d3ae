"""Archives, YAML, names and SQL at random: no traceback, no hang, and no file outside."""

import gzip
import io
import random
import shutil
import signal
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.unit.command_line import Run

ROOT = Path(__file__).parents[2]
SERVER_LOGS = ROOT / "tests" / "golden" / "server-log-only"
TABLES = ROOT / "data" / "samples" / "tables"
GRID = ROOT / "conf" / "grids" / "lag-times.yaml"
FOUND = (16198, 18292)
"""Cases that ended with a traceback once: a window on a table without a time, names of columns that are no text."""
SECONDS = 30
"""Of CPU time; what only waits is ended by the limit on the whole test."""
ROWS = 100
CASES = 150
"""The number for which `make test` has time."""
LINE = b"[2026-11-21 16:30:12,613] INFO [Partition a-0 broker=1] Shrinking ISR from 1,2 to 1. (kafka.Partition)\n"
NAMES = [
    "server.log", "b-1/server.log", "../../escape.log", "/tmp/isr-batch-escape.log", "b-1!/x", "a\nb/server.log",
    "\x1b[31m.log",
    "\u202eserver.log", "request.log.gz", "server.log.zip", "a.csv", "events.json", "", ".", "..", "con", "x" * 255,
    "\udcff",
    "cluster.yaml", "server.properties", "b-1/server.log!//c", "%s%n", "{0}", "$(id)", "-rf", "server.log.xz", "m.txt",
]  # fmt: skip
YAML = [
    "release: 3.6.2", "replica.lag.time.max.ms: ", "min.insync.replicas: ",
    "&a", "*a", "[", "]", "{", "}", "- ", "? ", ": ", "!!int", "!!python/name:os.system", "'", '"',
    "\n",
    "  ",
    "9" * 40, "2026-99-99", "|", ">", "%YAML 9.9", "---", "...", "<<: ", "\t", "\0", "\\x", "~", "yes", ".inf",
    "1:2:3", "0x", "#",
]  # fmt: skip


SQL = [
    "shrink_evidence", "leader_epochs", "coverage", "nothing", "SELECT", "FROM", "WHERE", "JOIN", "USING (topic)",
    "ON",
    "(", ")", "*", ",", "1", "-1", "1e999", "9" * 40, "'a'", "'", '"', '"topic"', "topic", "leader_id", "count(*)",
    "/",
    "=", "AND", "IS NULL", "GROUP BY", "ORDER BY ALL", "LIMIT", "UNION ALL", ";", "--", "/*", "NULL", "[1, 2]",
    "{'a': 1}",
    "::INTEGER", "::BLOB", "CAST(topic AS DATE)", "x ->", "lambda x: x", "$1", "?", "\x1b[31m", "\u202e", "%s", "{0}",
    "read_csv('/etc/passwd')", "'/etc/passwd'", "COPY coverage TO 'FOLDER/escape'", "ATTACH 'FOLDER/escape.db'",
    "INSTALL httpfs", "LOAD httpfs", "PRAGMA database_list", "SET memory_limit='1TB'", "DROP TABLE coverage",
    "CREATE TABLE t AS", "EXPORT DATABASE 'FOLDER/escape'", "CALL", "getenv('HOME')", "duckdb_settings()", "DESCRIBE",
    "SUMMARIZE", "PIVOT", "UNNEST(isr_before)", "OVER ()", "VALUES (1)", "INTERVAL 1 DAY", "DATE '2026-99-99'",
    "regexp_matches(topic, '(')", "repeat('a', 100)", "chr(27)", "chr(8238)", "error('%')",
]  # fmt: skip
TYPES = [*[tarfile.REGTYPE] * 6, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE]


def member(chosen: random.Random) -> bytes:
    data = LINE * chosen.randrange(1, 50)
    packed = gzip.compress(data)
    return chosen.choice([data, packed, packed[:-9], b"", b"\0" * 600, chosen.randbytes(300), b"a,b\n=1\n"])


def archive(chosen: random.Random, folder: Path) -> None:
    members = [(chosen.choice(NAMES), member(chosen)) for _ in range(chosen.randrange(5))]
    held = io.BytesIO()
    suffix = chosen.choice([".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2"])
    if suffix == ".zip":
        with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, data in dict(members).items():
                packed.writestr(name.encode(errors="replace").decode() or "e", data)
    else:
        mode = "w:" + {".tgz": "gz", ".tar": ""}.get(suffix, suffix.rpartition(".")[2])
        with tarfile.open(fileobj=held, mode=mode) as tar:  # type: ignore[call-overload]
            for name, data in members:
                entry = tarfile.TarInfo(name)
                entry.type = chosen.choice(TYPES)
                entry.linkname = chosen.choice(NAMES)
                entry.size = len(data) if entry.isreg() else 0
                tar.addfile(entry, io.BytesIO(data) if entry.isreg() else None)
    written = bytearray(held.getvalue())
    for _ in range(chosen.choice([0, 0, 1, 3, 20])):
        written[chosen.randrange(len(written))] = chosen.randrange(256)
    size = len(written)
    (folder / f"logs{suffix}").write_bytes(written[: chosen.choice([size, size, size, size // 2])])


def yaml_file(chosen: random.Random, folder: Path) -> None:
    (folder / "cluster.yaml").write_text("".join(chosen.choices(YAML, k=chosen.randrange(30))))
    (folder / "b-1").mkdir()
    (folder / "b-1" / "server.log").write_bytes(LINE)


def names(chosen: random.Random, folder: Path) -> None:
    for name in chosen.sample(NAMES, 4):
        place = folder / chosen.choice(["", "b-1", "b-2!", "c\n"]) / (name.strip("./").replace("/", "_") or "e")
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink() or place.exists():
            continue
        if chosen.random() < 0.2:
            place.symlink_to(chosen.choice([".", "..", "/etc/hostname", "self", str(folder)]))
        else:
            place.write_bytes(member(chosen))


def mutated(chosen: random.Random, text: str) -> str:
    """Change a file that is right in a few lines."""
    lines = text.splitlines()
    for _ in range(chosen.choice([0, 1, 1, 2, 5])):
        at = chosen.randrange(len(lines))
        name, colon, value = lines[at].partition(":")
        lines[at] = chosen.choice([
            f"{name}{colon} {chosen.choice(YAML)}", f"{chosen.choice(NAMES)}{colon}{value}", f" {lines[at]}", "",
            f"{lines[at]}\n{lines[at]}", lines[at].replace(chosen.choice(lines[at] or " "), chosen.choice(YAML)),
            name, chosen.choice(lines), lines[at].strip(), f"{name}{colon} [{value}]", f"{name}{colon} {{{value}: 1}}",
        ])  # fmt: skip
    return "\n".join(lines)


def mapping(chosen: random.Random, folder: Path, _lake: Path) -> list[str]:
    name = chosen.choice(["mapping.yaml", "shortest.yaml"])
    written = folder / "mapping.yaml"
    written.write_text(mutated(chosen, (TABLES / name).read_text()), errors="surrogateescape")
    for path in TABLES.glob("*.csv"):
        shutil.copyfile(path, folder / path.name)
    for path in TABLES.glob("*.parquet"):
        pq.write_table(pq.read_table(path).slice(0, ROWS), folder / path.name)
    table = folder / "fetches.parquet"
    if chosen.random() < 0.2:
        damaged = bytearray(table.read_bytes())
        damaged[chosen.randrange(len(damaged))] = chosen.randrange(256)
        table.write_bytes(damaged[: chosen.choice([len(damaged), len(damaged) // 2])])
    return ["ingest", "table", str(table), "--mapping", str(written), "--lake", str(folder / "lake"), "--from",
            "2000-01-01", "--to", "2000-01-02"]  # fmt: skip


def grid(chosen: random.Random, folder: Path, lake: Path) -> list[str]:
    (folder / "grid.yaml").write_text(mutated(chosen, GRID.read_text()), errors="surrogateescape")
    return ["sweep", "--grid", str(folder / "grid.yaml"), "--lake", str(lake), "--out", str(folder / "sweep.html")]


def sql(chosen: random.Random, folder: Path, lake: Path) -> list[str]:
    text = " ".join(chosen.choices(SQL, k=chosen.randrange(1, 12))).replace("FOLDER", str(folder))
    query = chosen.choice(["SELECT * FROM", "SELECT count(*) FROM shrink_evidence WHERE", "", "WITH a AS ("])
    return ["sql", f"{query} {text}".replace("\0", " "), "--lake", str(lake), "--engine", "local"]


def logs(chosen: random.Random, folder: Path, _lake: Path) -> list[str]:
    chosen.choice([archive, yaml_file, names])(chosen, folder)
    written = ["--lake", str(folder.with_name(f"{folder.name}-lake")), "--cluster", "c"]
    others = [["ingest", "kafka-logs", str(folder), *written], ["run", "--logs", str(folder), *written]]
    return chosen.choice(others) if chosen.random() < 0.05 else ["look", str(folder)]


def outside(folder: Path, lake: Path) -> set[str]:
    """List what is there but the folder of a case and its lake."""
    around = {str(path) for place in (folder.parent, lake) for path in place.iterdir() if folder.name not in path.name}
    return around | {str(path) for path in Path("/tmp").glob("*escape*")}


KINDS: list[Callable[[random.Random, Path, Path], list[str]]] = [*[logs] * 5, mapping, grid, *[sql] * 3]


def too_long(*_: object) -> None:
    raise AssertionError("does not end")


def run_case(isr_batch: Run, tmp_path: Path, lake: Path, seed: int) -> str:
    """Make the case of a seed, and run its command; returns its name."""
    chosen = random.Random(seed)
    folder = tmp_path / f"case-{seed}"
    folder.mkdir()
    command = chosen.choice(KINDS)(chosen, folder, lake)
    before = outside(folder, lake)
    signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        code, out, err = isr_batch(*command)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    assert code in {0, 2, 3, 4, 5}, f"{seed} {command}\n{err}"
    assert "Traceback" not in err, f"{seed}\n{err}"
    assert "\x1b" not in out + err, seed
    assert "\u202e" not in out + err, seed
    assert outside(folder, lake) == before, seed
    for made in tmp_path.glob(f"{folder.name}*"):
        shutil.rmtree(made)
    return command[0]


@pytest.fixture
def lake(isr_batch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a lake of server.log alone, made and read without Java, and without a session of earlier tests."""
    monkeypatch.setenv("ISR_BATCH__SPARK__ENGINE", "local")
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    target = tmp_path / "lake"
    assert isr_batch("ingest", "kafka-logs", str(SERVER_LOGS), "--lake", str(target), "--cluster", "c")[0] == 0
    return target


def test_whatever_is_there_is_read_or_refused(isr_batch: Run, tmp_path: Path, lake: Path) -> None:
    ran = [run_case(isr_batch, tmp_path, lake, seed) for seed in (*range(CASES), *FOUND)]
    assert {*ran} == {"look", "ingest", "run", "sql", "sweep"}


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("part", range(10))
def test_much_more_of_it(isr_batch: Run, tmp_path: Path, lake: Path, part: int) -> None:
    for seed in range(10_000 + 1_000 * part, 11_000 + 1_000 * part):
        run_case(isr_batch, tmp_path, lake, seed)
