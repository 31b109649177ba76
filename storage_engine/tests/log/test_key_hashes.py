"""The hashes that tell keys apart in a pass, and the table of their newest offsets."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.log.key_hashes import LONG_KEY_BYTES, KeyHasher, KeyHashes
from storage_engine.log.newest_offsets import NewestOffsets


def pairs(hashes: KeyHashes) -> list[tuple[int, int]]:
    return list(zip(hashes.high.tolist(), hashes.low.tolist(), strict=True))


@settings(max_examples=60, deadline=None)
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


def test_the_bits_of_the_hashes_are_spread_evenly():
    found = KeyHasher().hash(pa.array([b"%d" % n for n in range(20_000)], pa.binary()))
    for half in found:
        for bit in range(64):
            ones = int(((half >> np.uint64(bit)) & np.uint64(1)).sum())
            assert 9_000 < ones < 11_000


@settings(max_examples=60, deadline=None)
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
