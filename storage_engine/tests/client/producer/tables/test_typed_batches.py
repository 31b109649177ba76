"""Rows of typed topics go to their keys' partitions, in batches of the size that is wanted."""

from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from storage_engine.client.producer.partition_choice import (
    DEFAULT,
    KEY_PARTITIONERS,
    partition_for_key,
)
from storage_engine.client.producer.producer_errors import SerializationError
from storage_engine.client.producer.tables.typed_batches import typed_batches, typed_codec
from storage_engine.client.producer.tables.typed_rows import fitted
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.protocol.records.record_batch import Codec
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan

KEYED = new_schema(parse_ddl("id BIGINT, tag STRING, part STRUCT<a: INT NOT NULL>"), ["id"])
PAIRED = new_schema(parse_ddl("id BIGINT, tag STRING NOT NULL"), ["tag", "id"])
KEYLESS = new_schema(parse_ddl("id BIGINT, data BINARY"), [])
NOW = 1_700_000_000_000


def sent(table, schema, *, partitions=4, batch_bytes=900_000, compression=Codec.NONE):
    known = KnownSchema(UUID(int=3), schema)
    return list(
        typed_batches(
            fitted(table, "t", schema),
            known,
            partitions,
            batch_bytes=batch_bytes,
            compression=compression,
            partitioner=KEY_PARTITIONERS[DEFAULT],
            first_partition=1,
            now_ms=NOW,
        )
    )


def rows_of(batches, schema, metadata=()):
    """The rows of each partition, in order."""
    found: dict[int, list[dict[str, object]]] = {}
    for partition, batch in batches:
        for rows in iter_typed_decoded(
            batch.data, plan(schema, None, metadata), framed=False, topic_schema=schema
        ):
            found.setdefault(partition, []).extend(rows.batch.to_pylist())
    return found


def test_a_row_goes_where_other_clients_send_the_text_of_its_key():
    table = pa.table({"id": range(-50, 50)})
    found = rows_of(sent(table, KEYED), KEYED)
    expected: dict[int, list[object]] = {}
    for number in range(-50, 50):
        partition = partition_for_key(b"%d" % number, 4)
        expected.setdefault(partition, []).append({"id": number, "tag": None, "part": None})
    assert found == expected


def test_several_key_columns_are_one_json_object():
    found = rows_of(sent(pa.table({"id": [1, 2], "tag": ['"', "é"]}), PAIRED), PAIRED)
    for number, text in ((1, '{"tag":"\\"","id":1}'), (2, '{"tag":"é","id":2}')):
        partition = partition_for_key(text.encode(), 4)
        assert number in [row["id"] for row in found[partition]]


def test_a_named_partition_goes_before_the_key_and_rows_without_go_by_turns():
    by_key = partition_for_key(b"7", 4)
    named = (by_key + 1) % 4
    table = pa.table({"id": [7, 7, 7], "_partition": [named, None, named]})
    found = rows_of(sent(table, KEYED), KEYED)
    assert {partition: len(rows) for partition, rows in found.items()} == {named: 2, by_key: 1}
    spread = sent(pa.table({"id": range(1000)}), KEYLESS, batch_bytes=1000)
    assert {partition for partition, _ in spread} == {0, 1, 2, 3}
    with pytest.raises(SerializationError, match="'_partition' names partition 4; the topic has"):
        sent(pa.table({"id": [1], "_partition": [4]}), KEYLESS)


def test_special_columns_go_with_their_rows():
    table = pa.table(
        {
            "id": [1, 2, 3],
            "tag": ["a", "b", "c"],
            "_timestamp": [5000, None, 7000],
            "_deleted": [False, True, False],
            "_headers": [[{"key": "k", "value": b"v"}], None, []],
            "_partition": [2, 2, 2],
        }
    )
    (rows,) = rows_of(sent(table, KEYED), KEYED, ["_timestamp", "_deleted", "_headers"]).values()
    assert [(row["id"], row["tag"], row["_deleted"]) for row in rows] == [
        (1, "a", False),
        (2, None, True),
        (3, "c", False),
    ]
    assert [int(row["_timestamp"].timestamp() * 1000) for row in rows] == [5000, NOW, 7000]
    assert rows[0]["_headers"] == [{"key": "k", "value": b"v"}]


@pytest.mark.parametrize("compression", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("kind", ["noise", "text", "mixed"])
def test_stored_batches_come_close_to_the_size_that_is_wanted_and_never_pass_it(compression, kind):
    random = np.random.default_rng(4)
    rows = 6_000
    cells = {
        "noise": [random.bytes(200) for _ in range(rows)],
        "text": [b"%d" % n * 40 for n in range(rows)],
        # What shrinks well makes batches large, of what does not at all then.
        "mixed": [b"a" * 200] * (rows // 2) + [random.bytes(200) for _ in range(rows // 2)],
    }[kind]
    table = pa.table({"id": range(rows), "data": cells})
    batches = sent(table, KEYLESS, partitions=1, batch_bytes=50_000, compression=compression)
    (found,) = rows_of(batches, KEYLESS).values()
    assert found == table.to_pylist()
    sizes = [len(batch) for _, batch in batches]
    assert max(sizes) <= 50_000
    if kind != "mixed":
        assert max(sizes) > 25_000


def test_a_row_that_is_larger_goes_alone():
    table = pa.table({"id": [1, 2, 3], "data": [b"a", b"b" * 5000, b"c"]})
    batches = sent(table, KEYLESS, partitions=1, batch_bytes=1000)
    assert [batch.record_count for _, batch in batches] == [1, 1, 1]


def test_the_row_with_a_null_inside_is_named_by_its_place_in_the_table():
    inner = pa.StructArray.from_arrays(
        [pa.array([1, None, 3, 4], pa.int32())], names=["a"], mask=pa.array([False] * 4)
    )
    table = pa.table({"id": range(6), "part": pa.chunked_array([inner.slice(2), inner])})
    with pytest.raises(SerializationError, match="row 3 of the table has null inside the col"):
        sent(table, KEYED)


@pytest.mark.parametrize("name", ["gzip", "snappy"])
def test_codecs_that_columns_do_not_have_are_told(name):
    with pytest.raises(SerializationError, match=f"by {name}: set compression.type to lz4, zstd"):
        typed_codec(name, "t")


def test_a_table_without_rows_is_no_batch():
    assert sent(pa.table({"id": pa.array([], pa.int64())}), KEYED) == []
