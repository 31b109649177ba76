"""The hashes that tell keys apart in a pass, and the table of their newest offsets."""

import math

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.log.cleaning.key_hashes import (
    LONG_KEY_BYTES,
    KeyHasher,
    KeyHashes,
    NewestOffsets,
)
from storage_engine.tests.sampling import examples


def pairs(hashes: KeyHashes) -> list[tuple[int, int]]:
    return list(zip(hashes.high.tolist(), hashes.low.tolist(), strict=True))


@settings(max_examples=examples(60), deadline=None)
@given(keys=st.lists(st.binary(max_size=12), min_size=1, max_size=60), cut=st.integers(0, 60))
def test_equal_keys_have_equal_hashes_and_others_do_not(keys, cut):
    hasher = KeyHasher()
    together = pairs(hasher.hash(pa.array(keys, pa.binary())))
    apart = [
        pair
        for part in (keys[:cut], keys[cut:])
        for pair in pairs(hasher.hash(pa.array(part, pa.binary())))
    ]
    assert together == apart
    assert len(set(together)) == len(set(keys))


def test_keys_of_zeros_and_of_all_lengths_differ():
    lengths = [*range(70), *range(LONG_KEY_BYTES - 5, LONG_KEY_BYTES + 5)]
    keys = [bytes(length) for length in lengths] + [b"x" * length for length in lengths[1:]]
    found = pairs(KeyHasher().hash(pa.array(keys, pa.binary())))
    assert len(set(found)) == len(keys)


def test_every_pass_hashes_in_its_own_way():
    keys = pa.array([b"key", b"k" * LONG_KEY_BYTES], pa.binary())
    first, second = pairs(KeyHasher().hash(keys)), pairs(KeyHasher().hash(keys))
    assert first[0] != second[0] and first[1] != second[1]


def test_many_keys_are_hashed_in_slices():
    keys = [b"%08d" % number for number in range(200_000)]
    found = KeyHasher().hash(pa.array(keys, pa.binary()))
    assert len(set(pairs(found))) == len(keys)


DRAWS = 600
PAIRS = [
    (b"1", b"2"),
    (b"", b"\0"),
    (b"abcd", b"abce"),
    (b"abcd", b"abcd\0\0\0\0"),
    (b"0123456789", b"0123456799"),
    (b"k" * 400, b"k" * 399 + b"l"),
]


def test_the_bits_of_two_hashes_differ_by_chance_over_the_draws():
    """The family promises: over the draws of coefficients, the hashes of any two keys are
    independent and even. Of one draw it promises nothing: keys that differ in few bits may all
    have the same low bit. So each of the 128 bits differs in a binomial number of the draws; by
    Hoeffding's bound a bit is off by as much as this once in 10^9 choices of the seed."""
    bits = 128 * len(PAIRS)
    allowed = math.sqrt(DRAWS / 2 * math.log(2 * bits * 1e9))
    seeds = np.random.default_rng(5)
    differ = np.zeros((len(PAIRS), 128), np.int64)
    keys = pa.array([key for pair in PAIRS for key in pair], pa.binary())
    for _ in range(DRAWS):
        hashes = np.stack(KeyHasher(seeds.bytes(16)).hash(keys), axis=1)
        differ += np.unpackbits((hashes[::2] ^ hashes[1::2]).view(np.uint8), axis=1)
    assert np.abs(differ - DRAWS / 2).max() < allowed


@settings(max_examples=examples(60), deadline=None)
@given(parts=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), max_size=8))
def test_the_table_has_the_newest_offset_of_every_key(parts):
    hasher = KeyHasher()
    table = NewestOffsets(1 << 20)
    expected: dict[int, int] = {}
    offset = 0
    for part in parts:
        keys = pa.array([b"%d" % key for key in part], pa.binary())
        table.add(hasher.hash(keys), np.arange(offset, offset + len(part)))
        for key in part:
            expected[key] = offset
            offset += 1
    asked = pa.array([b"%d" % key for key in range(42)], pa.binary())
    assert table.newest(hasher.hash(asked)).tolist() == [expected.get(key, -1) for key in range(42)]
    assert len(table) == len(expected)
