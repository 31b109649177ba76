"""Which row goes to which partition."""

import pyarrow as pa
import pytest

from connector.errors import RowError
from connector.sink.row_routing import Router
from storage_engine.client.producer.partitioner import partitions_for_keys
from storage_engine.core.ids import TopicPartition

PARTITIONS = {"t": 4, "u": 2}


def _route(rows, topic="t"):
    """Per partition the rows as (key, value)."""
    routed = {}
    for route in Router(topic=topic, partition_count=PARTITIONS.__getitem__).route(rows):
        group = route.rows()
        assert group.topic_partition not in routed
        keys = [None] * len(group.values) if group.keys is None else group.keys.to_pylist()
        routed[group.topic_partition] = list(zip(keys, group.values.to_pylist(), strict=True))
    return routed


def _rows(**columns):
    types = {
        "key": pa.string(),
        "value": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
    }
    return pa.record_batch({name: pa.array(each, types[name]) for name, each in columns.items()})


def test_rows_of_a_key_stay_together_in_their_order_where_a_kafka_client_puts_them():
    keys = [f"k{number % 7}" for number in range(200)]
    values = [str(number) for number in range(200)]
    routed = _route(_rows(key=keys, value=values))
    expected = partitions_for_keys(pa.array(keys, pa.binary()), 4)
    for number, key in enumerate(keys):
        assert (key.encode(), values[number].encode()) in routed[
            TopicPartition("t", int(expected[number]))
        ]
    for rows in routed.values():
        numbers = [int(value) for _, value in rows]
        assert numbers == sorted(numbers)
    assert sum(len(rows) for rows in routed.values()) == 200


def test_rows_without_a_key_go_together_to_one_partition_then_to_the_next():
    router = Router(topic="t", partition_count=PARTITIONS.__getitem__)
    rows = _rows(value=["a", "b"])
    seen = [route.topic_partition.partition for _ in range(8) for route in router.route(rows)]
    assert len(seen) == 8
    assert sorted(seen[:4]) == [0, 1, 2, 3]
    assert seen[:4] == seen[4:]


def test_the_partition_column_outranks_the_key_row_by_row():
    routed = _route(_rows(key=["k", "k", "k"], value=["a", "b", "c"], partition=[3, None, 0]))
    hashed = int(partitions_for_keys(pa.array([b"k"]), 4)[0])
    assert (b"k", b"a") in routed[TopicPartition("t", 3)]
    assert (b"k", b"c") in routed[TopicPartition("t", 0)]
    assert (b"k", b"b") in routed[TopicPartition("t", hashed)]


def test_the_topic_column_decides_where_no_option_does():
    rows = _rows(value=["a", "b", "c"], topic=["t", "u", "t"], partition=[1, 1, 1])
    assert _route(rows, topic=None) == {
        TopicPartition("t", 1): [(None, b"a"), (None, b"c")],
        TopicPartition("u", 1): [(None, b"b")],
    }
    assert set(_route(rows)) == {TopicPartition("t", 1)}


def test_headers_go_with_their_rows():
    headers = pa.array(
        [[("h", b"0")], None, [("h", b"2")]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    rows = pa.record_batch(
        {
            "value": pa.array(["a", "b", "c"]),
            "partition": pa.array([1, 0, 0], pa.int32()),
            "headers": headers,
        }
    )
    routes = Router(topic="t", partition_count=PARTITIONS.__getitem__).route(rows)
    groups = [route.rows() for route in routes]
    assert [group.headers and group.headers.to_pylist() for group in groups] == [
        [None, [{"key": "h", "value": b"2"}]],
        [[{"key": "h", "value": b"0"}]],
    ]


def test_column_names_are_case_insensitive():
    rows = pa.record_batch({"VALUE": pa.array(["a"]), "Partition": pa.array([2], pa.int32())})
    assert _route(rows) == {TopicPartition("t", 2): [(None, b"a")]}


def test_a_null_topic_is_one_line():
    with pytest.raises(RowError, match=r"^\[NULL_TOPIC\] 1 of 2 rows have null in [^\n]*$"):
        _route(_rows(value=["a", "b"], topic=["t", None]), topic=None)


@pytest.mark.parametrize("partition", [4, -1])
def test_a_partition_that_does_not_exist_is_one_line(partition):
    with pytest.raises(RowError) as raised:
        _route(_rows(value=["a", "b"], partition=[0, partition]))
    assert str(raised.value) == (
        f"[NO_SUCH_PARTITION] the column 'partition' names partition {partition} of the topic 't', "
        "which has partitions 0 to 3"
    )


def test_no_rows_go_nowhere():
    assert _route(_rows(value=[])) == {}
