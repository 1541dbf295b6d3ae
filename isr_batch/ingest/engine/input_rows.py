"""Convert the rows of an ingest to the columns of an input table. For example, ``x_time`` is computed from ``x_us``."""

from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa

from isr_batch.ingest.engine.engine import Engine, Rows
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.tables import inputs as contracts
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.controller import CONTROLLER_RECORDS
from isr_batch.lake.tables.leaders import COVERAGE, LEADER_EPOCHS

_INSTANTS = {
    contracts.FETCH_LOG.name: {"event_date": "handled_us"},
    contracts.APPEND_LOG.name: {"event_date": "append_us"},
    LEADER_EPOCHS.name: {"event_date": "start_us"},
    contracts.OBSERVED_ISR_CHANGES.name: {"event_date": "at_us", "change_time": "at_us"},
    contracts.BROKER_EVENTS.name: {"event_date": "at_us", "event_time": "at_us"},
    COVERAGE.name: {"event_date": "from_us"},
    CONTROLLER_RECORDS.name: {"event_date": "record_us"},
    contracts.QUARANTINE.name: {},
}


def with_input_columns(engine: Engine, rows: Rows, table: Table, constants: Mapping[str, str]) -> Rows:
    """Convert rows to the schema of an input table: the same columns in the same order, with times as timestamps.

    Parameters
    ----------
    engine : Engine
    rows : Rows
        Rows with times in microseconds since 1970, in columns such as ``handled_us``.
    table : Table
        One of `isr_batch.lake.tables.inputs.INPUT_TABLES`.
    constants : mapping of str to str
        Value of each column that is the same in all rows, by column name.

    Returns
    -------
    Rows
    """
    schema = pa.schema([field.with_nullable(True) for field in arrow_schema(table)])
    found = engine.map(rows, partial(_with_input_columns, table, constants), schema)
    if isinstance(found, pa.Table):
        return pa.Table.from_arrays(found.columns, schema=arrow_schema(table))
    return found


def _with_input_columns(
    table: Table, constants: Mapping[str, str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    instants = _INSTANTS[table.name]
    for rows in batches:
        columns = []
        for field in arrow_schema(table):
            if field.name in constants:
                columns.append(pa.repeat(pa.scalar(constants[field.name]), rows.num_rows))
            elif pa.types.is_temporal(field.type):
                us = rows[instants.get(field.name, field.name.removesuffix("_time") + "_us")]
                columns.append(us.cast(pa.timestamp("us", "UTC")).cast(field.type, safe=False))
            else:
                columns.append(rows[field.name].cast(field.type))
        yield pa.RecordBatch.from_arrays(columns, names=arrow_schema(table).names)
