"""The check of keys: the walk and the vectorised way refuse and accept the same."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import InvalidRecordError
from storage_engine.protocol.records import record_keys
from storage_engine.protocol.records.record_batch import HEADER_BYTES, read_header, seal
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_keys import check_keys
from storage_engine.tests.sampling import examples


def outcome(data: memoryview, monkeypatch, walked_max: int) -> str:
    monkeypatch.setattr(record_keys, "WALKED_RECORDS_MAX", walked_max)
    try:
        check_keys(data, [(0, read_header(data))])
    except InvalidRecordError as error:
        return "no key" if "no key" in str(error) else "damaged"
    return "accepted"


@settings(max_examples=examples(300), deadline=None)
@given(
    keys=st.lists(st.one_of(st.none(), st.binary(max_size=3)), min_size=1, max_size=5),
    place=st.integers(0, 1000),
    byte=st.integers(0, 255),
    damaged=st.booleans(),
)
def test_both_ways_agree_on_any_batch(keys, place, byte, damaged):
    (batch,) = encode_batches(pa.array([b"v"] * len(keys)), pa.array(keys, pa.binary()), now_ms=0)
    data = memoryview(bytearray(batch.data))
    if damaged:
        data[HEADER_BYTES + place % (len(data) - HEADER_BYTES)] = byte
        seal(data, 0, read_header(data))
    with pytest.MonkeyPatch.context() as monkeypatch:
        walked = outcome(data, monkeypatch, 64)
        decoded = outcome(data, monkeypatch, 0)
    if not damaged:
        assert walked == ("no key" if None in keys else "accepted")
        assert decoded == walked
    elif walked == "accepted":
        # What was taken can be compacted.
        assert decoded == "accepted"


@pytest.mark.parametrize("count", [100, 3_000])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_the_records_without_a_key_are_named_up_to_a_number(count, compression, monkeypatch):
    monkeypatch.setattr(record_keys, "WALKED_RECORDS_MAX", 100)
    keys = [None if number % 2 else b"k" for number in range(count)]
    (batch,) = encode_batches(
        pa.array([b"v"] * count), pa.array(keys, pa.binary()), compression=compression
    )
    with pytest.raises(InvalidRecordError, match=f"{count // 2} of {count} records") as raised:
        check_keys(batch.data, [(0, read_header(batch.data))])
    named = [place for place, reason in raised.value.records if "no key" in reason]
    assert named == list(range(1, count, 2))[: record_keys.NAMED_MAX]


def test_a_bomb_is_refused():
    (batch,) = encode_batches(
        pa.array([bytes(70 << 20)]), pa.array([b"k"]), compression="zstd", batch_bytes=1 << 30
    )
    assert len(batch.data) < 1 << 20
    with pytest.raises(InvalidRecordError, match="decompress to more than"):
        check_keys(batch.data, [(0, read_header(batch.data))])
