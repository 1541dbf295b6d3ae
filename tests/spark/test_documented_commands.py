"""Every command of the documents that works on a lake does so, on the lake of a story."""

from pathlib import Path
from typing import Any

import pytest

from isr_batch.lake.lake import Lake
from pipelines import cli
from tests.unit.test_documented_commands import ELSEWHERE, IN_ORDER, PAGES, ROOT, commands_in, in_process

INSTEAD = {
    "topic": "story",
    "busy": "story",
    "...": "SELECT count(*) FROM fetches",
    "conf/experiments/*.yaml": "conf/experiments/lag-messages-burst.yaml",
    "200": "2",  # partitions
    "--hours": "--hours=0.02",
}


@pytest.mark.nightly  # a quarter of an hour while other tests run
@pytest.mark.timeout(3600)
def test_commands_of_the_documents(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    told = {tuple(args) for page in PAGES for args in commands_in(page.read_text(encoding="utf-8"))}
    left = [args for args in sorted(told) if args[0] not in ELSEWHERE and not in_process(args)]
    monkeypatch.chdir(ROOT)
    for args in sorted(left, key=lambda args: IN_ORDER.index(args[0])):
        folder = f"{lake.root}-of-a-fleet" if "mixed-fleet" in args or args[0] == "experiment" else lake.root
        places = {
            "LAKE": folder,
            "story.svg": f"{tmp_path}/story.svg",
            "sweep.html": f"{tmp_path}/sweep.html",
            "isr_batch.prom": f"{tmp_path}/isr_batch.prom",
            "verdicts.csv": f"{tmp_path}/verdicts.csv",
            "page.md": f"{tmp_path}/page.md",
            ".": f"{tmp_path}/timelines",
        }
        now = [places.get(part, INSTEAD.get(part, part)) for part in args]
        if "--hours=0.02" in now:
            del now[now.index("--hours=0.02") + 1]
        with pytest.raises(SystemExit) as ended:
            cli.main([*now, "--quiet"])
        assert not ended.value.code, (args, capsys.readouterr().err)
    assert {file.name for file in tmp_path.iterdir()} >= {
        "story.svg", "sweep.html", "isr_batch.prom", "verdicts.csv", "page.md", "timelines"
    }  # fmt: skip
