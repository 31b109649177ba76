"""Keys go where Kafka's producers send them (R-CLI1)."""

import random

import numpy as np
import pyarrow as pa
import pytest

from storage_engine.client.producer.partitioner import murmur2, partitions_for_keys

KEYS = [random.Random(5).randbytes(size) for size in [*range(70), 255, 1000, 4001]] * 3


def reference(key: bytes) -> int:
    kafka_murmur2 = pytest.importorskip("kafka.partitioner.default").murmur2
    return kafka_murmur2(key) & 0xFFFFFFFF


def test_hashes_equal_those_of_kafka_python():
    assert murmur2(pa.array(KEYS, pa.binary())).tolist() == [reference(key) for key in KEYS]


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_equal_those_that_the_java_client_is_tested_with(key, hashed):
    assert murmur2(pa.array([key], pa.binary())).astype(np.int32).tolist() == [hashed]


def test_slices_chunks_strings_and_large_columns_hash_alike():
    expected = [reference(key) for key in KEYS[3:50]]
    column = pa.array(KEYS, pa.binary())
    assert murmur2(column.slice(3, 47)).tolist() == expected
    assert murmur2(pa.chunked_array([column[3:10], column[10:50]])).tolist() == expected
    assert murmur2(pa.array(KEYS[3:50], pa.large_binary())).tolist() == expected
    texts = ["", "é", "schlüssel", "x" * 100]
    assert murmur2(pa.array(texts)).tolist() == [reference(text.encode()) for text in texts]


def test_one_very_long_key_among_short_ones_hashes_right_and_fast():
    keys = [b"short"] * 1000 + [random.Random(1).randbytes(1_000_003)]
    assert murmur2(pa.array(keys, pa.binary())).tolist()[-1] == reference(keys[-1])


def test_partitions_are_those_of_the_positive_hash():
    partitions = partitions_for_keys(pa.array(KEYS, pa.binary()), 7)
    assert partitions.dtype == np.int32
    assert partitions.tolist() == [(reference(key) & 0x7FFFFFFF) % 7 for key in KEYS]


def test_rows_without_a_key_get_the_partition_given_for_them():
    keys = pa.array([b"k", None, b"", None], pa.binary())
    partitions = partitions_for_keys(keys, 5, null_partition=3).tolist()
    assert [partitions[1], partitions[3]] == [3, 3]
    assert partitions[2] == (reference(b"") & 0x7FFFFFFF) % 5


def test_empty_columns_give_empty_answers():
    assert partitions_for_keys(pa.array([], pa.binary()), 3).tolist() == []
    assert partitions_for_keys(pa.chunked_array([], pa.binary()), 3).tolist() == []
    assert partitions_for_keys(pa.array([None, None], pa.binary()), 3).tolist() == [0, 0]
