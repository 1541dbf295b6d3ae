"""Create Delta tables without Spark, by writing the first commit, in a folder, on S3 or on HDFS.

Spark takes a second to create a table. The package deltalake takes some milliseconds, but refuses constraints with
functions that it does not know (``size``, ``array_contains``). Therefore this module writes the commit itself: a file
of three lines as in Delta's protocol (PROTOCOL.md of delta-io/delta: change metadata, protocol evolution, commit
provenance).
"""

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from isr_batch.lake.ddl import table_properties
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.tables.contract import Table

_NAMES = {"INT": "integer", "BIGINT": "long"}


def create_table(table: Table, store: Store, metadata: str) -> None:
    """Create an empty table with the columns and properties of its contract. An existing table is left unchanged.

    Parameters
    ----------
    table : Table
    store : Store
        Where to create the table. If two processes create it at the same time on S3 or HDFS, the later one overwrites
        the first one's commit, which differs only in the table's id.
    metadata : str
        User metadata of the commit, as JSON.
    """
    properties = table_properties(table)
    now_ms = int(time.time() * 1000)
    fields = [{"name": column.name, "type": _type(column.type), "nullable": column.nullable,
               "metadata": {"comment": column.comment}} for column in table.columns]  # fmt: skip
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": now_ms, "operation": "CREATE TABLE", "operationParameters": {},
                        "engineInfo": "isr-batch", "userMetadata": metadata}},
        {"protocol": {"minReaderVersion": 1, **_writers(table)}},
        {"metaData": {
            "id": str(uuid.uuid4()), "description": table.comment, "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": list(table.partitioned_by), "configuration": properties, "createdTime": now_ms,
        }},
    ]  # fmt: skip
    text = "".join(json.dumps(action) + "\n" for action in actions)
    path = f"_delta_log/{0:020}.json"
    if store.is_folder:
        _write_commit_once(Path(store.uri, path), text)
    elif not store.has_table():
        # delta-rs' stream accepts only bytes. With a buffer that holds all of the text, Arrow's stream passes it bytes.
        with store.files().open_output_stream(path, buffer_size=2 * len(text)) as out:
            out.write(text.encode())


def _write_commit_once(path: Path, text: str) -> None:
    """Write the first commit of a local table atomically, unless another process has already written it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.parent / f".{uuid.uuid4()}.tmp"
    written.write_text(text, encoding="utf-8")
    try:
        os.link(written, path)  # raises if another process was first
    except FileExistsError:
        pass
    finally:
        written.unlink()


def _writers(table: Table) -> dict[str, Any]:
    """Return the writer version and features that a table's first commit must declare. Spark declares the same."""
    if table.change_feed:
        constraints = ["checkConstraints"] if table.constraints else []
        return {"minWriterVersion": 7, "writerFeatures": [*constraints, "invariants", "changeDataFeed", "appendOnly"]}
    return {"minWriterVersion": 3 if table.constraints else 2}


def _type(name: str) -> str | dict[str, Any]:
    """Convert a contract's type, such as "BIGINT" or "ARRAY<INT>", to its JSON form in Delta's log."""
    if name.startswith("ARRAY<"):
        return {"type": "array", "elementType": _type(name[6:-1]), "containsNull": True}
    if name.startswith("MAP<"):
        key, value = name[4:-1].split(", ")
        return {"type": "map", "keyType": _type(key), "valueType": _type(value), "valueContainsNull": True}
    if name.startswith("STRUCT<"):  # a struct, whose fields have plain types
        members = (member.split(": ") for member in name[7:-1].split(", "))
        fields = [{"name": of, "type": _type(is_), "nullable": True, "metadata": {}} for of, is_ in members]
        return {"type": "struct", "fields": fields}
    return _NAMES.get(name, name.lower())
