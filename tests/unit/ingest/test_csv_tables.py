"""CSV tables as other tools write them: read, or refused with the reason."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from isr_batch.errors import SchemaError, UsageError
from isr_batch.lake.tables.inputs import FETCH_LOG
from tests.made_up_tables import MAPPING, made_up_table
from tests.unit.ingest.test_table_law import contents, ingest, lake_in, mapping_in


def test_csv_files_of_other_tools(tmp_path: Path) -> None:
    """Times that end with UTC, as BigQuery and Trino write them; files that are refused by their separator or text."""
    table = made_up_table(6, seconds=100)
    times = [f"{text} UTC" for text in table["ts_ms"].cast(pa.timestamp("ms")).cast(pa.string()).to_pylist()]
    csv.write_csv(table.set_column(5, "ts_ms", pa.array(times)), tmp_path / "utc.csv")
    lakes = lake_in(tmp_path / "a"), lake_in(tmp_path / "b")
    pq.write_table(table, tmp_path / "plain.parquet")
    ingest(lakes[0], mapping_in(tmp_path), tmp_path / "plain.parquet")
    iso = mapping_in(tmp_path, MAPPING.replace("unit: ms", "unit: iso"))
    ingest(lakes[1], iso, tmp_path / "utc.csv")
    assert contents(lakes[0])[FETCH_LOG.name] == contents(lakes[1])[FETCH_LOG.name] != []
    text = (tmp_path / "utc.csv").read_text(encoding="utf-8")
    (tmp_path / "semicolons.csv").write_text(text.replace(",", ";"), encoding="utf-8")
    with pytest.raises(UsageError, match="separated by ';'") as error:
        ingest(lakes[1], iso, tmp_path / "semicolons.csv")
    assert 'csv: {delimiter: ";"}' in error.value.hint
    (tmp_path / "latin.csv").write_text(f"{text}\nü,0,1,2,3,x,4,0", encoding="latin-1")
    with pytest.raises(SchemaError, match="not text in UTF-8"):
        ingest(lakes[1], iso, tmp_path / "latin.csv")
