"""The rows that both sides of the comparison of Avro have."""

import json
from io import BytesIO

import fastavro
import pyarrow as pa

from benchmarks.avro.rides import PARTITIONS, batches_of, checksum, ride_schema
from benchmarks.typed.columns import ALL, make_rows
from storage_engine.protocol.records.record_decoder import decode_batches

ROWS = 1_001
SCHEMA_ID = 7


def test_the_records_are_what_confluents_deserializers_read():
    schema = fastavro.parse_schema(json.loads(ride_schema().text))
    bodies = [value[5:] for value in _values(0, 3)]
    found = [fastavro.schemaless_reader(BytesIO(body), schema, None) for body in bodies]
    assert [list(each) for each in found] == [list(ALL)] * 3
    assert found == make_rows(0, 3).to_pylist()


def test_each_row_is_in_one_partition_and_all_have_as_many():
    values = _by_partition(0, ROWS)
    assert [len(each) for each in values] == [250, 250, 250, 251]
    assert len({value for each in values for value in each}) == ROWS
    assert {value[:5] for each in values for value in each} == {b"\0\0\0\0\7"}


def test_fewer_rows_than_partitions_are_all_there():
    assert len(_values(5, PARTITIONS - 1)) == PARTITIONS - 1


def test_the_sum_is_that_of_ids_and_cents():
    rows = make_rows(0, ROWS).to_pylist()
    assert checksum(ROWS) == sum(row["id"] + round(row["fare"] * 100) for row in rows)


def _by_partition(first_id: int, count: int) -> list[list[bytes]]:
    batches: list[list[memoryview]] = [[] for _ in range(PARTITIONS)]
    for partition, batch in batches_of(make_rows(first_id, count), SCHEMA_ID):
        batches[partition].append(batch.data)
    empty = pa.array([], pa.binary())
    return [(decode_batches(each).values if each else empty).to_pylist() for each in batches]


def _values(first_id: int, count: int) -> list[bytes]:
    return [value for each in _by_partition(first_id, count) for value in each]
