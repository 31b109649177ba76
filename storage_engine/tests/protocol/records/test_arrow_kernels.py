"""Times of records are whole milliseconds, cut off downwards before 1970, too."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.protocol.records.arrow_kernels import milliseconds
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches

PER_MS = {"us": 1_000, "ns": 1_000_000}


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("unit", PER_MS)
@given(times=st.lists(st.none() | st.integers(-(1 << 61), 1 << 61), max_size=20))
def test_fractions_of_a_millisecond_are_cut_off_downwards(unit, zone, times):
    expected = [None if each is None else each // PER_MS[unit] for each in times]
    array = pa.array(times, pa.timestamp(unit, zone))
    assert milliseconds(array).to_pylist() == expected
    assert milliseconds(pa.chunked_array([array, array])).to_pylist() == expected * 2


def test_greater_units_are_counted_in_milliseconds():
    assert milliseconds(pa.array([-2, 3], pa.timestamp("s", "UTC"))).to_pylist() == [-2000, 3000]
    assert milliseconds(pa.array([-2, None], pa.timestamp("ms"))).to_pylist() == [-2, None]


def test_a_record_of_the_last_moment_before_1970_is_not_of_1970():
    times = pa.array([-1], pa.timestamp("us", "UTC"))
    (batch,) = encode_batches(pa.array([b"x"]), timestamps_ms=times, now_ms=5)
    assert decode_batches([batch.data]).timestamps_ms.to_pylist() == [-1]
