"""The transaction coordinator's log as record batches, and back."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.transactions.transaction_state import (
    LedgerKey,
    LedgerRecord,
    MemberKey,
    MemberRecord,
    StateContent,
    StateKey,
    TransactionalIdKey,
)
from storage_engine.protocol.records.record_batch import patch, read_header, validate_for_append
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.state.state_batches import encode_raw
from storage_engine.protocol.state.transaction_batches import encode_entries, replay
from storage_engine.protocol.state.transaction_records import encode_key
from storage_engine.tests.sampling import examples


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


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.lists(entries(), min_size=1, max_size=4), min_size=1, max_size=5))
def test_the_log_is_read_as_the_newest_record_of_each_key(history):
    whole = bytearray()
    in_pieces: StateContent = {}
    offset = 0
    for step in history:
        ((_, batch),) = encode_entries(step, now_ms=5, part_bytes=1 << 20)
        patch(batch, 0, base_offset=offset, leader_epoch=3)
        offset += len(step)
        whole += batch
        replay(batch, in_pieces)
    newest = dict(entry for step in history for entry in step)
    wanted = {key: record for key, record in newest.items() if record is not None}
    at_once: StateContent = {}
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
    content: StateContent = {}
    (later,) = encode_batches(pa.array([b"x"]), pa.array([b"\x7f\xffabc"]), now_ms=0)
    replay(later.data, content)
    assert content == {}
    (no_key,) = encode_batches(pa.array([b"x"]), None, now_ms=0)
    (trouble,) = replay(no_key.data, content)
    assert "the record at offset 0 of the transaction state log has no key" in trouble


def test_what_can_not_be_read_costs_the_rest_nothing():
    sound = [(MemberKey(n), member(n)) for n in range(3)]
    batches = bytearray()
    for entry in sound:
        ((_, batch),) = encode_entries([entry], now_ms=0, part_bytes=1 << 20)
        if entry == sound[1]:
            # Its number of headers.
            batch[-1] ^= 1
        batches += batch
    keys = [b"\0", encode_key(LedgerKey("s", "q")), encode_key(TransactionalIdKey("t"))]
    raw = [(keys[0], b"a key that ends too early"), (keys[1], b"\x7f\xff"), (keys[2], b"\0\1x")]
    content: StateContent = {}
    troubles = replay(bytes(batches) + bytes(encode_raw(raw, now_ms=0)), content)
    unreadable = {key for key, known in content.items() if isinstance(known, UnreadableRecord)}
    assert unreadable == {LedgerKey("s", "q"), TransactionalIdKey("t")}
    assert content.keys() - unreadable == {MemberKey(0), MemberKey(2)}
    assert len(troubles) == 4
    assert [each for each in troubles if "counts for nothing" in each] == troubles[:2]
    assert all("are refused until a broker that can read" in each for each in troubles[2:])
    tombstone = encode_raw([(keys[1], None)], now_ms=0)
    assert replay(tombstone, content) == []
    assert LedgerKey("s", "q") not in content
