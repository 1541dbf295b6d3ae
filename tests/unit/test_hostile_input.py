"""Archives, YAML and names at random: no traceback, no hang, and no file outside."""

import gzip
import io
import random
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.command_line import Run

SECONDS = 30
LINE = b"[2026-11-21 16:30:12,613] INFO [Partition a-0 broker=1] Shrinking ISR from 1,2 to 1. (kafka.Partition)\n"
NAMES = [
    "server.log", "b-1/server.log", "../../escape.log", "/tmp/isr-batch-escape.log", "b-1!/x", "a\nb/server.log",
    "\x1b[31m.log",
    "\u202eserver.log", "request.log.gz", "server.log.zip", "a.csv", "events.json", "", ".", "..", "con", "x" * 255,
    "\udcff",
    "cluster.yaml", "server.properties", "b-1/server.log!//c", "%s%n", "{0}", "$(id)", "-rf", "server.log.xz", "m.txt",
]  # fmt: skip
YAML = [
    "release: 3.6.2", "&a", "*a", "[", "]", "{", "}", "- ", "? ", ": ", "!!int", "!!python/name:os.system", "'", '"',
    "\n",
    "  ",
    "9" * 40, "2026-99-99", "|", ">", "%YAML 9.9", "---", "...", "<<: ", "\t", "\0", "\\x", "~", "yes", ".inf",
    "1:2:3", "0x", "#",
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


def outside(folder: Path) -> set[str]:
    return {str(path) for path in folder.parent.iterdir()} | {str(path) for path in Path("/tmp").glob("*escape*")}


KINDS: list[Callable[[random.Random, Path], None]] = [archive, yaml_file, names]


def look_at(isr_batch: Run, tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    folder = tmp_path / f"logs-{seed}"
    folder.mkdir()
    chosen.choice(KINDS)(chosen, folder)
    before = outside(folder)
    begun = time.monotonic()
    code, out, err = isr_batch("look", str(folder))
    assert code in {0, 2, 3, 4, 5}, (seed, err)
    assert "Traceback" not in err, seed
    assert "\x1b" not in out + err, seed
    assert "\u202e" not in out + err, seed
    assert time.monotonic() - begun < SECONDS, seed
    assert outside(folder) == before, seed


def test_whatever_is_there_is_looked_at_or_refused(isr_batch: Run, tmp_path: Path) -> None:
    for seed in range(200):
        look_at(isr_batch, tmp_path, seed)


@pytest.mark.nightly
def test_much_more_of_it(isr_batch: Run, tmp_path: Path) -> None:
    for seed in range(1_000, 11_000):
        look_at(isr_batch, tmp_path, seed)
