"""The records of the transaction coordinator's log: Kafka's layout, ours, and damage."""

import struct
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import (
    NO_TIME,
    LedgerKey,
    LedgerRecord,
    MemberEnd,
    MemberKey,
    MemberRecord,
    NumberClaim,
    NumberInterval,
    NumbersKey,
    NumbersRecord,
    Origin,
    TransactionalIdKey,
    TransactionRecord,
    TransactionState,
    state_partition,
)
from storage_engine.protocol.state.transaction_records import (
    ORIGIN_CLOCK_MAX,
    decode_key,
    decode_record,
    encode_key,
    encode_record,
)
from storage_engine.tests.sampling import examples

END = MemberEnd(5, 0, True, frozenset({TopicPartition("a", 0)}))
ids = st.integers(0, 2**63 - 1)
epochs = st.integers(0, 32_766)
names = st.text(max_size=8)
partitions = st.frozensets(
    st.builds(TopicPartition, st.sampled_from(["a", "b", "ü"]), st.integers(0, 2**31 - 1)),
    max_size=5,
)
transactions = st.builds(
    TransactionRecord,
    producer_id=ids,
    producer_epoch=epochs,
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(TransactionState),
    last_update_ms=ids,
    start_ms=st.integers(-1, 2**63 - 1),
    partitions=partitions,
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    client_version=st.sampled_from([0, 2]),
)
members = st.builds(
    MemberRecord,
    sink=names,
    query=names,
    batch=ids,
    epoch=epochs,
    timeout_ms=st.integers(1, 2**31 - 1),
    origin_clock=ids,
    aborting=st.booleans(),
    partitions=partitions,
)
ledgers = st.builds(
    LedgerRecord,
    last=st.integers(-1, 2**63 - 1),
    ends=st.lists(
        st.builds(MemberEnd, ids, epochs, st.booleans(), partitions),
        max_size=4,
        unique_by=lambda end: end.producer_id,
    ).map(tuple),
    origins=st.dictionaries(
        st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 9)),
        st.builds(Origin, ids, st.integers(0, ORIGIN_CLOCK_MAX)),
        max_size=4,
    ),
    once_ms=st.just(NO_TIME) | st.integers(0, 2**63 - 1),
    owner=names,
    run=st.none() | st.uuids(),
    rows=st.integers(-1, 2**63 - 1),
    winner=st.integers(-1, 2**63 - 1),
    claim=st.none()
    | st.builds(NumberClaim, st.integers(0, 2**63 - 1), st.uuids(), st.none() | st.uuids()),
    runs=st.lists(st.uuids(), max_size=3).map(tuple),
)


def _spread(steps: list[tuple[int, int, str]]) -> NumbersRecord:
    """Intervals from the widths of gaps and intervals."""
    intervals, at = [], -1
    for gap, width, owner in steps:
        intervals.append(NumberInterval(at + gap, at + gap + width, owner))
        at = intervals[-1].last
    return NumbersRecord(intervals=tuple(intervals))


numbers = st.lists(st.tuples(st.integers(1, 2**40), st.integers(0, 2**40), names), max_size=4).map(
    _spread
)
entries = st.one_of(
    st.tuples(st.builds(TransactionalIdKey, names), transactions),
    st.tuples(st.builds(MemberKey, ids), members),
    st.tuples(st.builds(LedgerKey, names, names), ledgers),
    st.tuples(st.builds(NumbersKey, names, names), numbers),
)


@given(entries)
def test_every_record_is_read_as_it_was_written(entry):
    key, record = entry
    assert decode_key(encode_key(key)) == key
    assert decode_record(key, encode_record(record)) == record


@settings(max_examples=examples(100), deadline=None)
@given(entries, st.data())
def test_damaged_bytes_are_refused_or_read_as_some_record_and_never_crash(entry, data):
    key, record = entry
    raw_key, raw = bytearray(encode_key(key)), bytearray(encode_record(record))
    for buffer in (raw_key, raw):
        at = data.draw(st.integers(0, len(buffer) - 1))
        buffer[at] = data.draw(st.integers(0, 255))
    try:
        decode_key(bytes(raw_key))
        decode_record(key, bytes(raw))
    except CorruptRecordError as error:
        assert "\n" not in str(error)


@settings(max_examples=20, deadline=None)
@given(entries)
def test_a_record_that_is_cut_off_is_refused(entry):
    key, record = entry
    for whole, decode in (
        (encode_key(key), decode_key),
        (encode_record(record), lambda raw: decode_record(key, raw)),
    ):
        for size in range(len(whole)):
            with pytest.raises(CorruptRecordError):
                decode(whole[:size])
        with pytest.raises(CorruptRecordError):
            decode(whole + b"\0")


def test_a_transaction_has_the_bytes_that_kafka_writes():
    record = TransactionRecord(
        producer_id=7,
        producer_epoch=3,
        timeout_ms=60_000,
        state=TransactionState.PREPARE_COMMIT,
        last_update_ms=1_700_000_000_500,
        start_ms=1_700_000_000_000,
        partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
        previous_producer_id=5,
        client_version=2,
    )
    assert encode_key(TransactionalIdKey("tx")) == b"\0\0" + b"\0\2tx"
    assert encode_record(record) == (
        b"\0\1"
        + struct.pack(">qhib", 7, 3, 60_000, 2)
        + b"\x02" + b"\x02t" + b"\x03" + struct.pack(">ii", 0, 1) + b"\0"
        + struct.pack(">qq", 1_700_000_000_500, 1_700_000_000_000)
        + b"\x02" + b"\x00\x08" + struct.pack(">q", 5) + b"\x02\x02" + b"\0\2"
    )  # fmt: skip


def test_a_transaction_of_an_old_kafka_is_read():
    raw = (
        b"\0\0"
        + struct.pack(">qhib", 7, 3, 60_000, 1)
        + struct.pack(">i", 1) + b"\0\1t" + struct.pack(">iii", 2, 4, 5)
        + struct.pack(">qq", 500, 400)
    )  # fmt: skip
    record = decode_record(TransactionalIdKey("tx"), raw)
    assert record.partitions == {TopicPartition("t", 4), TopicPartition("t", 5)}
    assert (record.state, record.start_ms) == (TransactionState.ONGOING, 400)
    no_partitions = raw[:17] + struct.pack(">i", -1) + raw[-16:]
    assert decode_record(TransactionalIdKey("tx"), no_partitions).partitions == frozenset()


def test_tagged_fields_of_a_later_version_are_skipped():
    record = MemberRecord(sink="s", query="q", batch=1, epoch=0, timeout_ms=1, origin_clock=0)
    raw = encode_record(record)
    assert raw[-1:] == b"\0"
    assert decode_record(MemberKey(1), raw[:-1] + b"\x01\x09\x02ab") == record


def test_keys_of_unknown_versions_are_for_others():
    assert decode_key(b"\0\7anything") is None
    with pytest.raises(CorruptRecordError, match="version 2 is not known"):
        decode_record(TransactionalIdKey("tx"), b"\0\2rest")


def test_states_and_sets_that_do_not_exist_are_refused():
    transaction = TransactionRecord(
        producer_id=1,
        producer_epoch=32_767,
        timeout_ms=1,
        state=TransactionState.COMPLETE_ABORT,
        last_update_ms=0,
    )
    raw = bytearray(encode_record(transaction))
    state_at = 2 + 8 + 2 + 4
    assert raw[state_at] == TransactionState.COMPLETE_ABORT
    for state in (6, TransactionState.ONGOING):
        raw[state_at] = state
        with pytest.raises(CorruptRecordError):
            decode_record(TransactionalIdKey("tx"), bytes(raw))
    ledger = LedgerRecord(last=0, ends=(MemberEnd(1, 0, True, frozenset()),))
    raw = bytearray(encode_record(ledger))
    index_at = len(raw) - 3
    assert raw[index_at] == 0
    raw[index_at] = 1
    with pytest.raises(CorruptRecordError, match="no set of partitions 1"):
        decode_record(LedgerKey("s", "q"), bytes(raw))


@pytest.mark.parametrize(
    "record",
    [
        LedgerRecord(ends=(END, END)),
        LedgerRecord(ends=(END, replace(END, commits=False, partitions=frozenset()))),
        LedgerRecord(ends=(replace(END, producer_id=-1),)),
        LedgerRecord(ends=(replace(END, epoch=-1),)),
        LedgerRecord(origins={TopicPartition("a", 0): Origin(0, ORIGIN_CLOCK_MAX + 1)}),
        LedgerRecord(origins={TopicPartition("a", 0): Origin(0, -1)}),
    ],
)
def test_a_ledger_that_a_coordinator_could_not_go_on_from_is_refused(record):
    with pytest.raises(CorruptRecordError):
        decode_record(LedgerKey("s", "q"), encode_record(record))


def test_ends_share_their_sets_of_partitions():
    tasks, wide = 2000, frozenset(TopicPartition("out", p) for p in range(100))
    ledger = LedgerRecord(
        last=1, ends=tuple(MemberEnd(task, 0, True, wide) for task in range(tasks))
    )
    raw = encode_record(ledger)
    assert len(raw) < 16 * tasks + 5 * len(wide) + 100
    assert decode_record(LedgerKey("s", "q"), raw) == ledger


@pytest.mark.parametrize(
    ("name", "partition"),
    [("", 0), ("a", 97 % 50), ("hello", 99_162_322 % 50), ("polygenelubricants", 0)],
)
def test_the_state_partition_is_that_of_java_s_hash(name, partition):
    assert state_partition(name, 50) == partition


@given(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=12))
@example("long" * 100)
def test_a_negative_hash_counts_without_its_sign(name):
    code = sum(ord(each) * 31 ** (len(name) - 1 - at) for at, each in enumerate(name))
    signed = (code + 2**31) % 2**32 - 2**31
    assert state_partition(name, 50) == (0 if signed == -(2**31) else abs(signed) % 50)
