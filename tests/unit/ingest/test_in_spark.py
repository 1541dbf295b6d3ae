"""Rows as packets: what workers hand each other."""

import gc
from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from isr_batch.ingest.engine import in_spark
from isr_batch.lake.arrow_rows import table_of_batches
from isr_batch.lake.arrow_sql import ArrowSql

KEYS = pa.schema([("topic", pa.string()), ("partition_id", pa.int32())])


def rows(count: int, number_type: pa.DataType) -> pa.Table:
    return pa.table({
        "topic": pa.array([None if n % 11 == 0 else f"t{n % 7}" for n in range(count)], pa.string()),
        "partition_id": pa.array([n % 5 for n in range(count)], number_type),
        "later_by": pa.array([None if n % 3 == 0 else [n, -n] for n in range(count)], pa.list_(pa.int32())),
        "number": pa.array(range(count), pa.int64()),
    })  # fmt: skip


def by_bucket(name: str, table: pa.Table, buckets: int) -> dict[int, pa.Table]:
    parts: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for packet in in_spark._packets_in_buckets(name, KEYS, buckets, iter(table.to_batches(max_chunksize=700))):
        (bucket,), (of_table,) = packet["bucket"].to_pylist(), packet["of_table"].to_pylist()
        assert of_table == name
        found = list(in_spark._unpacked_in_spark(iter([packet])))
        assert packet["rows"].to_pylist() == [sum(batch.num_rows for batch in found)]
        parts[bucket] += found
    return {bucket: pa.Table.from_batches(found) for bucket, found in parts.items()}


@pytest.mark.parametrize("count", [0, 1, in_spark.PACKET_ROWS, 3 * in_spark.PACKET_ROWS + 1])
def test_rows_come_out_of_packets_as_they_went_in(count: int) -> None:
    table = rows(count, pa.int32())
    packets = list(in_spark._packed_for_spark(iter(table.to_batches(max_chunksize=777))))
    assert all(0 < packet["rows"][0].as_py() <= in_spark.PACKET_ROWS for packet in packets)
    assert table_of_batches(in_spark._unpacked_in_spark(iter(packets)), table.schema).equals(table)


def test_equal_keys_meet_whatever_table_they_come_from() -> None:
    first, other = rows(4_000, pa.int32()), rows(300, pa.int64())
    found, others = by_bucket("a", first, 8), by_bucket("b", other, 8)
    assert len(found) > 1
    of_key = {
        key: bucket
        for bucket, part in found.items()
        for key in zip(*part.select(KEYS.names).to_pydict().values(), strict=True)
    }
    for bucket, part in [*found.items(), *others.items()]:
        keys = zip(*part.select(KEYS.names).to_pydict().values(), strict=True)
        assert {of_key[key] for key in keys} == {bucket}
    for table, parts in ((first, found), (other, others)):
        assert pa.concat_tables(parts.values()).sort_by("number").equals(table)


def test_a_function_of_keys_gets_all_tables_of_a_task() -> None:
    def joined(sql: ArrowSql, a: pa.Table, b: pa.Table) -> pa.Table:
        return sql("SELECT a.number, b.number AS other FROM a JOIN b USING (number)", a=a, b=b)

    first, other, schema = rows(50, pa.int32()), rows(0, pa.int32()), pa.schema([("number", pa.int64())])
    packets = list(in_spark._packets_in_buckets("a", KEYS, 1, iter(first.to_batches())))
    schemas = {"a": first.schema, "b": other.schema}
    assert not sum(batch.num_rows for batch in in_spark._worked_by_key(joined, schemas, schema, iter(packets)))
    packets += in_spark._packets_in_buckets("b", KEYS, 1, iter(first.slice(7, 3).to_batches()))
    found = table_of_batches(in_spark._worked_by_key(joined, schemas, schema, iter(packets)), schema)
    assert sorted(found["number"].to_pylist()) == [7, 8, 9]


def test_rows_that_meet_a_condition(sql: ArrowSql) -> None:
    table = rows(10, pa.int32())
    assert in_spark.meeting(sql, table, "partition_id > 2")["number"].to_pylist() == [3, 4, 8, 9]
    assert in_spark.meeting(sql, table, "topic = 't1'")["number"].to_pylist() == [1, 8]


def test_a_share_is_sorted_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_spark, "ROWS_AT_ONCE", 64)
    table = rows(1_000, pa.int32())
    packets = [
        *in_spark._packed_for_spark(iter(table.slice(500).to_batches())),
        *in_spark._packed_for_spark(iter(table[:500].to_batches())),
    ]
    order = [("partition_id", "ascending"), ("number", "ascending")]
    found = pa.Table.from_batches(in_spark._sorted_in_spark(order, table.schema, iter(packets)))
    assert found.equals(table.sort_by(order))


def test_answers_come_along_with_the_rows_that_they_are_about() -> None:
    table = rows(2 * in_spark.PACKET_ROWS + 1, pa.int32())
    schema = pa.schema([("number", pa.int64())])
    asked = {"high": in_spark.Query("SELECT number FROM rows WHERE partition_id > 2", schema)}
    packets = pa.Table.from_batches(in_spark._packed_with(asked, iter(table.to_batches()), with_rows=True))
    assert packets.num_rows > len(asked) + 1
    found = {}
    for name, columns in (("", table.schema), ("high", schema)):
        of_name = packets.filter(pc.equal(packets["of_table"], name))
        found[name] = table_of_batches(in_spark._unpacked_in_spark(iter(of_name.to_batches())), columns)
    assert found[""].equals(table)
    expected = table.filter(pc.greater(table["partition_id"], 2))["number"].to_pylist()
    assert found["high"]["number"].to_pylist() == expected


def test_numbers_are_where_the_kernels_expect_them_wherever_a_packet_begins() -> None:
    table = rows(10, pa.int32())
    (packed,) = in_spark._packed_for_spark(iter(table.to_batches()))
    assert len(packed["packet"][0].as_py()) % 8 == 0
    shifted = pa.array([b"x", packed["packet"][0].as_py()]).slice(1)
    moved = packed.set_column(packed.schema.get_field_index("packet"), "packet", shifted)
    for batch in (packed, moved):
        (found,) = in_spark._unpacked_in_spark(iter([batch]))
        assert found.column("number").buffers()[1].address % 8 == 0
        assert pa.Table.from_batches([found]).equals(table)


def test_what_lives_at_the_begin_of_a_task_is_not_visited_when_garbage_is_collected_after_it() -> None:
    living: list[object] = [[]]
    try:
        assert list(in_spark._worked_in_spark(lambda batches: batches, iter([]))) == []
        assert not any(each is living for each in gc.get_objects())
    finally:
        gc.unfreeze()
    assert any(each is living for each in gc.get_objects())
