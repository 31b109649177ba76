"""Nested arrays taken apart: slices, nulls that hide bytes, and values that can't be read."""

import numpy as np
import pyarrow as pa
import pytest

from storage_engine.protocol.typed.nested_arrays import (
    binary_values,
    bits,
    boolean_array,
    first_bad,
    list_lengths,
    map_as_list,
    null_mask,
    one_value,
)

MAPS = pa.array([[("a", 1)], None, [], [("b", 2), ("c", None)]], pa.map_(pa.string(), pa.int64()))


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 4), (3, 4), (0, 0), (2, 2)])
def test_a_slice_of_maps_is_the_same_slice_of_lists(start, stop):
    found = map_as_list(MAPS[start:stop])
    found.validate(full=True)
    expected = [
        each and [{"key": key, "value": value} for key, value in each]
        for each in MAPS[start:stop].to_pylist()
    ]
    assert found.to_pylist() == expected
    assert list_lengths(found).tolist() == [len(each or ()) for each in expected]


def test_a_null_that_hides_elements_has_none():
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 5]), pa.array(range(5)), mask=pa.array([False, True])
    )
    assert list_lengths(hidden).tolist() == [2, 0]
    assert null_mask(hidden).tolist() == [False, True]


@pytest.mark.parametrize("start", [0, 1, 7, 8, 9, 20])
def test_bits_begin_where_a_slice_does(start):
    truths = [number % 3 == 0 for number in range(20)]
    array = boolean_array(np.array(truths))
    assert array.to_pylist() == truths
    assert bits(array[start:]).tolist() == truths[start:]


@pytest.mark.parametrize("bad", [0, 1, 49, 98, 99])
def test_the_first_value_that_can_not_be_read_is_found_by_few_steps(bad):
    steps = []

    def read(start, stop):
        steps.append(stop - start)
        if start <= bad < stop or (start <= 99 < stop):
            raise ValueError
        return []

    assert first_bad(100, read) == bad
    assert len(steps) <= 7


def test_values_are_made_of_bytes():
    assert binary_values([b"a", b"", b"bcd"]).to_pylist() == [b"a", b"", b"bcd"]
    assert one_value(pa.int32(), b"\x05\0\0\0").as_py() == 5
