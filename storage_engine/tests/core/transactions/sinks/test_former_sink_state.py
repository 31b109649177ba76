"""State records of the time when named batch writes of a sink were one sequence: bytes that were
written by that version. Source: R-SPARK2."""

import json
from pathlib import Path

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.single_use import single_use
from storage_engine.core.transactions.sink_names import NO_QUERY, ONCE_PREFIX, named_write
from storage_engine.core.transactions.transaction_state import LedgerKey
from storage_engine.protocol.state.transaction_records import decode_key, decode_record
from storage_engine.tests.core.transactions.coordinator_bench import CoordinatorBench, error

STORED = Path(__file__).parents[3] / "protocol" / "fixtures" / "sink_state_of_one_sequence.json"
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
STREAM = "5f0e7a9e-4c1d-4f4e-9a53-0f6f3b6a6c11"


@pytest.fixture
def bench() -> CoordinatorBench:
    """A coordinator that has read the stored log."""
    made = CoordinatorBench()
    for entry in json.loads(STORED.read_text()).values():
        key = decode_key(bytes.fromhex(entry["key"]))
        assert key is not None
        made.log.append((key, decode_record(key, bytes.fromhex(entry["value"]))))
    made.replicated = len(made.log)
    made.fail_over()
    made.replicate()
    return made


@pytest.mark.parametrize("owner", ["", "q"])
@pytest.mark.parametrize("part", ["a", "t", "u"])
def test_no_number_of_a_sequence_is_a_success_of_any_part_or_query(bench, part, owner):
    """Nobody knows whose the last one was: a job of another part, or a query with a new checkpoint,
    would drop its rows."""
    for settled in (False, True):
        for number in (7, 6, 0):
            who = {"sink": "daily", "query": named_write(part, number), "owner": owner}
            assert error(bench.join(number, **who)) is ErrorCode.BATCH_ID_UNKNOWN
            assert error(bench.commit(number, rows=0, **who)) is ErrorCode.BATCH_ID_UNKNOWN
            assert error(bench.commit(number, drained=1, **who)) is ErrorCode.NOT_COMMITTED
        if not settled:
            bench.settle()
    assert error(bench.join(0, sink="another", query=named_write(part, 0))) is ErrorCode.NONE


def test_numbers_behind_a_sequence_go_on(bench):
    for number, owner in ((8, "q"), (9, "")):
        who = {"sink": "daily", "query": named_write("t", number), "owner": owner}
        told = bench.commit(number, bench.attempt(number, **who), **who)
        assert error(told) is ErrorCode.NONE
        assert error(bench.join(number, **who)) is ErrorCode.ALREADY_COMMITTED


def test_what_was_left_half_done_is_brought_to_its_end(bench):
    committed, loser, opened = (single_use(number) for number in (41, 42, 43))
    bench.settle()
    assert bench.written[committed, A] == bench.written[committed, B] == {True}
    assert bench.outcome(loser) == {False}
    bench.pass_time(1000)
    bench.settle()
    assert bench.outcome(opened) == {False}, "no driver of this version can commit it"
    assert not list(bench.coordinator.batches.members())


def test_streams_go_on_counting_and_origins_of_single_writes_are_folded(bench):
    source = TopicPartition("id:abc", 3)
    assert error(bench.join(12, sink="stream", query=STREAM)) is ErrorCode.ALREADY_COMMITTED
    assert bench.join(13, sink="stream", query=STREAM).origins == {source: 99}
    origins = {source: 9, TopicPartition("id:abc", 4): 5}
    assert bench.join(0, sink="copy", query="q").origins == origins
    bench.pass_time(10**10)
    bench.settle()
    bench.fail_over()
    bench.settle()
    known = dict(bench.coordinator.batches.ledgers())
    assert not any(key.query.startswith(ONCE_PREFIX) for key in known)
    assert set(known[LedgerKey("copy", NO_QUERY)].origins) == set(origins)
    assert bench.join(1, sink="copy", query="q").origins == origins
