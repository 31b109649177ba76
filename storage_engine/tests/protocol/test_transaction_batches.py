"""The transaction coordinator's log as record batches, and back."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.transaction_state import (
    LedgerKey,
    LedgerRecord,
    MemberKey,
    MemberRecord,
    StateKey,
    StateRecord,
)
from storage_engine.protocol.record_batch import patch, read_header, validate_for_append
from storage_engine.protocol.record_encoder import encode_batches
from storage_engine.protocol.transaction_batches import encode_entries, replay


def member(batch: int) -> MemberRecord:
    return MemberRecord(sink="s", query="q", batch=batch, epoch=0, timeout_ms=1, origin_clock=0)


keys: st.SearchStrategy[StateKey] = st.one_of(
    st.builds(MemberKey, st.integers(0, 3)), st.builds(LedgerKey, st.just("s"), st.just("q"))
)


@st.composite
def entries(draw):
    key = draw(keys)
    number = draw(st.integers(0, 100))
    record = LedgerRecord(last=number) if isinstance(key, LedgerKey) else member(number)
    return key, draw(st.sampled_from([record, None]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(entries(), min_size=1, max_size=4), min_size=1, max_size=5))
def test_the_log_is_read_as_the_newest_record_of_each_key(history):
    whole = bytearray()
    in_pieces: dict[StateKey, StateRecord] = {}
    offset = 0
    for step in history:
        ((_, batch),) = encode_entries(step, now_ms=5, part_bytes=1 << 20)
        patch(batch, 0, base_offset=offset, leader_epoch=3)
        offset += len(step)
        whole += batch
        replay(batch, in_pieces)
    newest = dict(entry for step in history for entry in step)
    wanted = {key: record for key, record in newest.items() if record is not None}
    at_once: dict[StateKey, StateRecord] = {}
    replay(whole, at_once)
    assert at_once == in_pieces == wanted


def test_a_step_is_one_batch_that_a_leader_takes():
    entries = [(MemberKey(n), member(n)) for n in range(50)]
    ((_, batch),) = encode_entries(entries, now_ms=7, part_bytes=1 << 20)
    header = read_header(batch)
    assert (header.size_in_bytes, header.records_count) == (len(batch), 50)
    assert header.max_timestamp == 7
    assert len(validate_for_append(batch, max_message_bytes=1 << 20)) == 1


def test_records_of_a_later_version_are_skipped_and_one_without_a_key_is_damage():
    content: dict[StateKey, StateRecord] = {}
    (later,) = encode_batches(pa.array([b"x"]), pa.array([b"\x7f\xffabc"]), now_ms=0)
    replay(later.data, content)
    assert content == {}
    (no_key,) = encode_batches(pa.array([b"x"]), None, now_ms=0)
    with pytest.raises(CorruptRecordError, match="offset 0 of the transaction state log"):
        replay(no_key.data, content)


def test_a_damaged_batch_is_refused():
    ((_, batch),) = encode_entries([(MemberKey(1), member(1))], now_ms=0, part_bytes=1 << 20)
    batch[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        replay(batch, {})
