"""Names: no identifier with the avoided word, unique names of public classes, and a tree that names every file."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("isr_batch", "udfs", "pipelines")
MOST_LINES = 400

_TOLD = re.compile(r"(^|_)(un)?told(_|$)|Told")


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Give every module with its path."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            yield file.relative_to(ROOT).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def bound(module: ast.Module) -> Iterator[str]:
    """Give the names that a module binds: what it only uses was named elsewhere."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname


def test_no_identifier_has_the_avoided_word() -> None:
    found = {path: sorted({name for name in bound(module) if _TOLD.search(name)}) for path, module in modules()}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_public_class_has_a_name_of_its_own() -> None:
    where = defaultdict(list)
    for path, module in modules():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(path)
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


def test_the_tree_names_every_file() -> None:
    """By its name in CONTRIBUTING.md; the rules, the jobs of spark-submit and the contracts speak for themselves."""
    tree = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("```")[2].partition("\ntests/")[0]
    named = set(re.findall(r"\w+\.py", tree))
    files = {Path(path) for path, _ in modules() if "/rules/" not in path and "/tables/" not in path}
    jobs = {
        file
        for file in files
        if file.parent.name == "pipelines" and "for spark-submit" in (ROOT / file).read_text("utf-8")
    }
    assert {str(file) for file in files - jobs if file.name not in {*named, "__init__.py"}} == set()
    assert named <= {Path(path).name for path, _ in modules()}


def test_files_stay_short() -> None:
    lines = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n")
        for folder in (*PACKAGES, "tests", "docs/generate", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {path: number for path, number in lines.items() if number > MOST_LINES} == {}
