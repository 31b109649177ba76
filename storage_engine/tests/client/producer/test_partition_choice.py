"""Single records go where Kafka's producers, and our own for tables, send them (R-CLI1)."""

import itertools
import random

import pyarrow as pa
import pytest
from confluent_kafka import Producer as ConfluentProducer
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.client.producer.partition_choice import (
    KEY_PARTITIONERS,
    StickyPartition,
    murmur2,
    partition_for_key,
)
from storage_engine.client.producer.partitioner import partitions_for_keys
from storage_engine.tests.sampling import examples


@settings(deadline=None, max_examples=examples(50))
@given(st.binary(max_size=200))
def test_the_hash_equals_that_of_kafka_python(key):
    kafka = pytest.importorskip("kafka.partitioner.default")
    assert murmur2(key) == kafka.murmur2(key) & 0xFFFFFFFF


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.binary(max_size=40), min_size=1), st.integers(1, 1000))
def test_single_keys_and_columns_of_keys_go_to_the_same_partitions(keys, count):
    column = partitions_for_keys(pa.array(keys, pa.binary()), count).tolist()
    assert [partition_for_key(key, count) for key in keys] == column


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.integers(1, 300), min_size=1), st.integers(0, 2**32))
def test_records_without_a_key_change_partition_once_in_a_batch_of_bytes(sizes, seed):
    sticky = StickyPartition(500, random.Random(seed))
    taken = [(sticky.next(size, range(4)), size) for size in sizes]
    runs = [
        (partition, [size for _, size in run])
        for partition, run in itertools.groupby(taken, key=lambda each: each[0])
    ]
    for _, run in runs[:-1]:
        assert sum(run[:-1]) < 500 <= sum(run)
    assert sum(runs[-1][1][:-1]) < 500


def test_a_partition_that_lost_its_leader_is_left():
    sticky = StickyPartition(10_000, random.Random(1))
    first = sticky.next(1, [0, 1])
    assert sticky.next(1, [1 - first]) == 1 - first


def librdkafka_partitions(partitioner, keys, count):
    """Where librdkafka sends them, in a cluster of its own that it mocks."""
    producer = ConfluentProducer(
        {
            "bootstrap.servers": "mocked",
            "test.mock.num.brokers": 1,
            "log_level": 0,
            **({} if partitioner is None else {"partitioner": partitioner}),
        }
    )
    found = [-1] * len(keys)
    for place, key in enumerate(keys):

        def told(error, message, place=place):
            assert error is None
            found[place] = message.partition()

        producer.produce("t", b"v", key, on_delivery=told)
    assert producer.flush(60) == 0
    assert set(found) <= set(range(count))
    return found


@pytest.mark.parametrize(
    ("name", "theirs"),
    [(name, name) for name in KEY_PARTITIONERS if name != "random"] + [("consistent_random", None)],
)
def test_keys_go_where_librdkafka_sends_them(name, theirs):
    rng = random.Random(3)
    keys = [
        b"",
        b"a",
        bytes(7),
        b"\xff" * 7,
        *(rng.randbytes(rng.randrange(1, 40)) for _ in range(200)),
    ]
    partitions = librdkafka_partitions(theirs, keys, 4)
    ours = KEY_PARTITIONERS[name]
    singly = [ours.partition_of(key, 4) for key in keys]
    column = ours.partitions_of(pa.array(keys, pa.binary()), 4, spread=-1).tolist()
    assert column == [-1 if each is None else each for each in singly]
    assert [each for each in singly if each is not None] == [
        partition for each, partition in zip(singly, partitions, strict=True) if each is not None
    ]
    assert (singly[0] is None) == (name == "consistent_random")


@pytest.mark.parametrize("name", KEY_PARTITIONERS)
def test_records_without_a_key_are_spread_where_the_name_says_random(name):
    ours = KEY_PARTITIONERS[name]
    column = ours.partitions_of(pa.array([None, b"k"], pa.binary()), 4, spread=-1).tolist()
    spread = name.endswith("random")
    assert column[0] == (-1 if spread else ours.partition_of(b"", 4))
    assert (ours.partition_of(None, 4) is None) == spread
    assert (column[1] == -1) == (name == "random")
