"""YAML that is made to cost much, or to be what no file of ours is: a mistake of the user's, said within a second."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from isr_batch import yaml_files
from isr_batch.errors import UsageError
from isr_batch.ingest.folder.settings_files import read_cluster_settings
from isr_batch.ingest.own_table.mapping import load_mapping
from isr_batch.scoring.sweep_grid import load_grid
from isr_batch.settings import load_settings
from isr_batch.simulation.experiments import load_experiment
from isr_batch.yaml_files import load_yaml
from tests.unit.command_line import Run

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
HOSTILE = {
    "aliases": f"{LAUGHS}release: *a11\ngrid: *a11\n",
    "an alias of itself": "&a [*a]",
    "a day that is none": "release: 2026-99-99",
    "an offset that is none": "release: 2026-11-21T16:30:00+99:99",
    "digits": f"release: {'9' * 5000}",
    "hexadecimal digits": f"release: 0x{'f' * 5000}",
    "more than 64 bits": f"replica.lag.time.max.ms: {'9' * 19}",
    "brackets": "[" * 20_000,
    "closed brackets": "[" * 20_000 + "]" * 20_000,
    "braces": "{a: " * 20_000,
    "dashes": "- " * 20_000,
    "question marks": "? " * 20_000,
    "deep by indentation": "".join(f"{' ' * n}a{n}:\n" for n in range(300)),
    "many values": f"release: [{'1, ' * 20_000}]",
    "many keys": "".join(f"k{n}: 1\n" for n in range(12_000)),
    "large": "#" * 1_000_000,
    "a key of numbers": "1: 2",
    "a key of lists": "[1, 2]: 3",
    "a key twice": "release: 4.1.0\nrelease: 3.6.2",
    "base eight": "replica.lag.time.max.ms: 030000",
    "base sixty": "replica.lag.time.max.ms: 1:30",
    "a fraction in base sixty": "replica.lag.time.max.ms: 1:30.5",
    "infinite": "release: .inf",
    "none": "release: .nan",
    "an object": "release: !!python/object/apply:os.system [echo]",
    "bytes": "release: !!binary aGVsbG8=",
    "a set": "release: !!set {a, b}",
    "a tag without its value": "release: !!int seven",
    "a number of nothing": "release: !!int ''",
    "a fraction of a sign": "release: !!float '-'",
    "a truth of no kind": "release: !!bool perhaps",
    "a zero character": 'release: "3.6\\0"',
    "an escape": 'release: "\\e[31m"',
    "half a character": 'release: "\\ud800"',
    "two documents": "release: 3.6.2\n---\nrelease: 3.6.3\n",
    "no text": "\0\1\2",
    "a list": "[1, 2]",
    "a word": "kafka",
}


def settings_in(file: Path) -> object:
    return load_settings("hostile", conf=file.parent)


LOADERS: dict[str, Callable[[Path], object]] = {
    "cluster.yaml": read_cluster_settings,
    "mapping.yaml": load_mapping,
    "grid.yaml": load_grid,
    "experiment.yaml": load_experiment,
    "hostile.yaml": settings_in,
}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_yaml_is_a_mistake_within_a_second(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    begun = time.process_time()
    with pytest.raises(UsageError):
        LOADERS[name](tmp_path / name)
    assert time.process_time() - begun < 1


def test_a_grid_of_more_runs_than_can_be_counted(tmp_path: Path) -> None:
    values = list(range(1, 1000))
    names = ("replica_lag_time_max_ms", "min_insync_replicas", "check_period_ms", "check_phase_ms")
    (tmp_path / "grid.yaml").write_text(json.dumps({"rules": ["kafka-3.7"], "grid": dict.fromkeys(names, values)}))
    with pytest.raises(UsageError, match="rule runs"):
        load_grid(tmp_path / "grid.yaml")


@pytest.mark.parametrize("text", [*HOSTILE.values()][::4])
def test_the_command_line_reports_it(isr_batch: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.yaml").write_text(text)
    (tmp_path / "b-1").mkdir()
    (tmp_path / "b-1" / "server.log").write_text("[2026-11-21 16:30:12,613] INFO started (kafka.server.KafkaServer)\n")
    code, _, err = isr_batch("look", str(tmp_path))
    assert code == 2
    assert "cluster.yaml" in err


_SCALARS = st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(-1e15, 1e15) | st.text("ab 2-:#'\n")


@given(st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text("abc.", min_size=1), inner)))
def test_reads_the_same_as_yaml(document: object) -> None:
    text = yaml.safe_dump(document)
    assert yaml_files._YamlLoader(text).get_single_data() == yaml.safe_load(text)


@pytest.mark.parametrize("file", sorted(Path("conf").rglob("*.yaml")), ids=str)
def test_our_own_files_are_read_as_before(file: Path) -> None:
    assert load_yaml(file) == yaml.safe_load(file.read_text())
