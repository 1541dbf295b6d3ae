"""`run` on a folder with server.log and nothing else: what it says, writes and reports."""

from pathlib import Path
from typing import Any

import pytest

from isr_batch.lake.lake import Lake
from pipelines import cli
from tests.log_lines import SERVER_LOG_ONLY


def test_run_prints_the_evidence_of_server_log_alone(
    lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")  # a row in one line
    command = ["run", "--logs", str(SERVER_LOG_ONLY), "--lake", lake.root, "--cluster", "c", "--quiet", "--all"]
    for _ in range(2):  # the second time there is nothing new to read
        with pytest.raises(SystemExit) as ended:
            cli.main(command)
        assert not ended.value.code
        told = capsys.readouterr().out
        assert "11 replicas left the ISR in 2 storms" in told
        assert "the sign of a leader that was silent" in told
        assert "this points at broker 2 or the link to it (weak evidence)" in told
        assert "server.log of broker 3 is missing for this time: others may have dropped it too." in told
        assert "No logs of broker 3 are here" in told
        assert "has no request log" in told
        assert "no rule was compared" in told
        assert "docs/getting-logs.md" in told
        rows = [line.split() for line in told.splitlines() if line.strip().startswith("2026-11-21 16:3")]
        assert [row[3:10] for row in rows if row[2:4] == ["UTC", "busy-0"]] == [
            ["busy-0", "1", "2", "5103", "1", "215", "2"], ["busy-0", "1", "3", "5102", "1", "at", "most"],
            ["busy-0", "1", "2", "4378", "1", "3738", "5"],
        ]  # fmt: skip
    page = Path(lake.root) / "report.html"
    assert "the sign of a leader that was silent" in page.read_text(encoding="utf-8")
    assert not lake.has("shrink_verdicts")
    table, _ = lake.query(
        "SELECT count(*) AS rows, count(returned_ms) AS back, max(lag_ms) AS lag FROM shrink_evidence"
    )
    assert table == [{"rows": 11, "back": 8, "lag": 6378}]
    storms, _ = lake.query(
        "SELECT replicas, partitions, leaders, followers, suspect_broker, suspects, strong, spurious, under_min_isr, "
        "whole_after_ms, whole_after_source FROM evidence_storms ORDER BY storm_time"
    )
    assert [list(row.values()) for row in storms] == [
        [5, 4, [1, 2], [1, 2, 3], 1, ["follower", "leader"], 5, 2, 2, None, None],
        [6, 6, [1], [2], 2, ["link_or_follower"], 0, 0, 0, None, None],
    ]


def test_a_folder_without_any_of_both_is_refused_before_spark(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-1" / "request.log").write_text("[2026-11-21 16:00:00,001] DEBUG Completed request:{}\n")
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--logs", str(tmp_path), "--lake", str(tmp_path / "lake"), "--quiet"])
    assert ended.value.code == 3
    assert "no follower fetch" in capsys.readouterr().err
