"""Timestamps with the name of a zone, or on a 12-hour clock."""

import json
from pathlib import Path

import pytest

from isr_batch.errors import QualityGateError
from isr_batch.ingest.folder.first_look import require_readable_logs
from isr_batch.ingest.folder.log_folder import find_logs
from isr_batch.ingest.folder.log_options import LogOptions
from tests.unit.ingest.test_layouts import lines_by_log


def test_the_name_of_a_zone_is_not_taken_for_utc(tmp_path: Path) -> None:
    (tmp_path / "broker-1").mkdir()
    line = "2026-07-21 {} {} INFO [Partition t-0 broker=1] Shrinking ISR from 1,2 to 1 (kafka.cluster.Partition)"
    log = tmp_path / "broker-1" / "server.log"
    log.write_text(line.format("16:30:12,613", "CEST"))
    with pytest.raises(QualityGateError, match="CEST: --time-zone 1="):
        require_readable_logs(find_logs(tmp_path))
    (value,) = lines_by_log(tmp_path, LogOptions.parse(None, ["Europe/Berlin"]))[1, "server"]
    assert value.startswith("[2026-07-21 14:30:12,613] INFO [Partition t-0")
    assert value.endswith("(kafka.cluster.Partition)")
    log.write_text("\n".join(line.format(f"{hour}:30:12.613", "PM UTC") for hour in ("12", "4")))
    assert {value[12:17] for value in lines_by_log(tmp_path)[1, "server"]} == {"12:30", "16:30"}
    log.write_text(line.replace("2026-07-21", "Jul 21, 2026,").format("4:30:12.613", "PM"))
    assert [value[:24] for value in lines_by_log(tmp_path)[1, "server"]] == ["[2026-07-21 16:30:12,613"]

    event = {"timestamp": "2026-07-21 16:30:12,613 CEST", "level": "INFO", "logger": "kafka.cluster.Partition"}
    (log.parent / "kafka.log").write_text(f"{json.dumps(event | {'message': '[Partition t-0 broker=1] x'})}\n" * 3)
    assert "times of an unknown form" in {each.reason for each in find_logs(tmp_path).refused}


def test_a_zone_with_summer_time(tmp_path: Path) -> None:
    (tmp_path / "broker-1").mkdir()
    line = (
        "[2026-{}-21 16:30:12,613] INFO [Partition t-0 broker=1] Shrinking ISR from 1,2 to 1 (kafka.cluster.Partition)"
    )
    (tmp_path / "broker-1" / "server.log").write_text("\n".join(line.format(month) for month in ("07", "11")))
    values = lines_by_log(tmp_path, LogOptions.parse(None, ["1=Europe/Helsinki"]))[1, "server"]
    assert sorted(value[12:17] for value in values) == ["13:30", "14:30"]
