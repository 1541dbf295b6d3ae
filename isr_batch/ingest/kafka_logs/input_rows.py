"""Rows with the columns of an input table: ``x_time`` from ``x_us``, the rest by name."""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.tables import inputs as contracts
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.leaders import COVERAGE, LEADER_EPOCHS

_INSTANTS = {
    contracts.FETCH_LOG.name: {"event_date": "handled_us"},
    contracts.APPEND_LOG.name: {"event_date": "append_us"},
    LEADER_EPOCHS.name: {"event_date": "start_us"},
    contracts.OBSERVED_ISR_CHANGES.name: {"event_date": "at_us", "change_time": "at_us"},
    contracts.BROKER_EVENTS.name: {"event_date": "at_us", "event_time": "at_us"},
    COVERAGE.name: {"event_date": "from_us"},
    contracts.QUARANTINE.name: {},
}


def conformed(rows: DataFrame | pa.Table, table: Table, constants: Mapping[str, str]) -> DataFrame | pa.Table:
    """Select exactly the table's columns.

    Parameters
    ----------
    rows : DataFrame or pa.Table
        With times in epoch microseconds.
    table : Table
        One of `isr_batch.lake.tables.inputs.INPUT_TABLES`.
    constants : mapping of str to str
        Values of columns that are the same in all rows.
    """
    names = {
        column.name: _INSTANTS[table.name].get(column.name, column.name.removesuffix("_time") + "_us")
        if column.type in ("TIMESTAMP", "DATE") else column.name
        for column in table.columns
    }  # fmt: skip
    if isinstance(rows, pa.Table):
        columns = []
        for field in arrow_schema(table):
            if field.name in constants:
                columns.append(pa.repeat(pa.scalar(constants[field.name]), rows.num_rows))
            elif names[field.name] != field.name:
                columns.append(rows[names[field.name]].cast(pa.timestamp("us", "UTC")).cast(field.type, safe=False))
            else:
                columns.append(rows[field.name].cast(field.type))
        return pa.Table.from_arrays(columns, schema=arrow_schema(table))
    return rows.select(*(
        (
            F.lit(constants[column.name]) if column.name in constants
            else F.timestamp_micros(F.col(names[column.name])).cast(column.type) if names[column.name] != column.name
            else F.col(column.name).cast(column.type)
        ).alias(column.name)
        for column in table.columns
    ))  # fmt: skip
