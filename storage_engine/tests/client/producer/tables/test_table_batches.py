"""Tables go where single records would go, in order, all of them (R-CLI1, R-CLI7)."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.client.producer.partition_choice import (
    DEFAULT,
    KEY_PARTITIONERS,
    partition_for_key,
)
from storage_engine.client.producer.producer_errors import SerializationError
from storage_engine.client.producer.tables.table_batches import table_batches
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.sampling import examples


def batches(table, count, batch_bytes=500):
    return table_batches(
        table,
        count,
        batch_bytes=batch_bytes,
        compression="none",
        partitioner=KEY_PARTITIONERS[DEFAULT],
        first_partition=0,
        now_ms=5,
    )


def rows_by_partition(table, count, batch_bytes=500):
    rows: dict[int, list] = {}
    for partition, batch in batches(table, count, batch_bytes):
        decoded = decode_batches(batch.data)
        pairs = zip(decoded.keys.to_pylist(), decoded.values.to_pylist(), strict=True)
        rows.setdefault(partition, []).extend(pairs)
    return rows


@settings(deadline=None, max_examples=examples(50))
@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=5),
            st.none() | st.integers(0, 3),
        ),
        max_size=100,
    )
)
def test_rows_go_by_partition_then_key_and_keep_their_order(given_rows):
    keys = [key for key, _ in given_rows]
    partitions = [partition for _, partition in given_rows]
    values = [b"%d" % number for number in range(len(given_rows))]
    table = pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "VALUE": pa.array(values, pa.binary()),
            "partition": pa.array(partitions, pa.int32()),
        }
    )
    found = rows_by_partition(table, 4)
    everything = sorted(int(value) for rows in found.values() for _, value in rows)
    assert everything == list(range(len(values)))
    for partition, rows in found.items():
        numbers = [int(value) for _, value in rows]
        assert numbers == sorted(numbers)
        for key, value in rows:
            asked_key, asked_partition = given_rows[int(value)]
            assert key == asked_key
            if asked_partition is not None:
                assert partition == asked_partition
            elif key is not None:
                assert partition == partition_for_key(key, 4)


def test_texts_chunks_and_timestamps_are_taken_as_they_come():
    chunk = pa.table({"value": ["ä"], "timestamp": pa.array([1_500_000], pa.timestamp("us"))})
    ((partition, batch),) = batches(pa.concat_tables([chunk, chunk]), 1)
    decoded = decode_batches(batch.data)
    assert decoded.values.to_pylist() == ["ä".encode()] * 2
    assert [each.timestamp() for each in decoded.timestamps.to_pylist()] == [1.5, 1.5]
    assert partition == 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"key": ["a"]}), "no column 'value'"),
        (pa.table({"value": [1]}), "'value' is int64; it must be binary or string"),
        (pa.table({"value": ["a"], "topic": ["t"]}), "'topic' is not one of value, key"),
        (pa.table({"value": ["a"], "partition": ["b"]}), "'partition' is string; it must be"),
        (pa.table({"value": ["a"], "partition": [4]}), "names partition 4; the topic has"),
    ],
)
def test_a_table_that_can_not_be_sent_is_told_by_its_column(table, message):
    with pytest.raises(SerializationError, match=message):
        list(batches(table, 4))


def test_an_empty_table_makes_no_batch():
    assert list(batches(pa.table({"value": pa.array([], pa.binary())}), 3)) == []


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "x" * 40], pa.string_view()),
        pa.array(["a", None, "x"]).dictionary_encode(),
        pa.array([b"ab", None, b"cd"], pa.binary(2)),
        pa.array(["{}", None, "1"], pa.json_(pa.string())),
    ],
    ids=lambda each: str(each.type),
)
def test_the_encodings_of_other_libraries_are_sent(column):
    wanted = [each if each is None or isinstance(each, bytes) else each.encode()
              for each in column.to_pylist()]  # fmt: skip
    whole = pa.chunked_array([column, column.slice(1)])
    (rows,) = rows_by_partition(pa.table({"value": whole, "key": whole}), 1).values()
    assert rows == [(each, each) for each in [*wanted, *wanted[1:]]]


@pytest.mark.parametrize(
    "column",
    [pa.array([1]), pa.array([1]).dictionary_encode(), pa.array([["a"]])],
    ids=lambda each: str(each.type),
)
def test_a_value_of_another_type_is_refused(column):
    with pytest.raises(SerializationError, match=r"'value' is .*; it must be binary or string"):
        next(batches(pa.table({"value": column}), 1))
