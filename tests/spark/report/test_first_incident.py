"""The walk from a page to the answer: each of its commands, and what it says that they say, on the samples."""

import re
from pathlib import Path

import pytest

from isr_batch.incidents.own_shrinks import own_shrinks
from isr_batch.incidents.sentences import incidents_answer
from isr_batch.lake.lake import Lake
from pipelines import cli
from tests.unit.test_documented_commands import ROOT, commands_in

PAGE = (ROOT / "docs" / "first-incident.md").read_text(encoding="utf-8")


def test_quotes_equal_the_output(sample_lake: Lake, sample_report: Path) -> None:
    said = " ".join(" ".join(incidents_answer(own_shrinks(sample_lake))).split())
    (quoted,) = re.findall(r"(?:^ *> .*\n)+", PAGE, re.MULTILINE)
    assert " ".join(quoted.replace(">", " ").split()) in said
    page = sample_report.read_text(encoding="utf-8")
    for emphasised in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", PAGE):
        assert " ".join(emphasised.split()) in page
    assert "a replica.lag.time.max.ms of more than 20,005 would have kept all 18 healthy followers" in page


def test_its_commands(
    sample_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    places = {"LAKE": sample_lake.root} | {name: str(tmp_path / name) for name in ("story.svg", "verdicts.csv")}
    run, *others = commands_in(PAGE)
    assert run == ["run", "--logs", "data/samples", "--lake", "LAKE"]  # `make sample` runs it
    assert len(others) == 5
    told = []
    for args in others:
        with pytest.raises(SystemExit) as ended:
            cli.main([*(places.get(part, part) for part in args), "--quiet"])
        out, err = capsys.readouterr()
        assert not ended.value.code, (args, err)
        told.append(out)
    everything, of_broker, at_time, shrink, _ = told
    assert (
        "Broker 1 was silent for 6.09 s; brokers 2 and 3 dropped broker 1 from 10 ISRs; broker 1 dropped 10 healthy"
        in everything
    )
    of_it, of_others = of_broker.split("Others in which broker 1 dropped followers, or was dropped:")
    assert ": broker 2\n" not in of_it
    assert ": Broker 2 was silent for" in of_others
    for storm in (of_broker, at_time):
        assert (
            "2026-11-21 16:31:47 to 16:31:54: broker 1\n  was silent for 6.09 s\n    SELECT * FROM broker_events"
            in storm
        )
        assert "  broker 1 dropped 10 healthy followers (brokers 2 and 3)\n    broker-1/server.log.gz lines 9" in storm
    assert at_time.count("was silent") == 1
    assert "drops brokers 2 and 3 from the ISR of busy-0 at 2026-11-21 16:31:54" in shrink
    assert (tmp_path / "story.svg").stat().st_size > 10_000
    verdicts = (tmp_path / "verdicts.csv").read_text(encoding="utf-8")
    assert verdicts.count(',"spurious",') == 18
