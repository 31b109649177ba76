"""Transactions of Kafka's producers in the coordinator: epochs, ends, repeats, failover, time.
Source: KIP-98, KIP-360, KIP-890."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.producer_epochs import LAST_CLIENT_EPOCH
from storage_engine.core.transaction_events import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    VerifyPartitions,
)
from storage_engine.core.transaction_state import (
    TransactionalIdKey,
    TransactionRecord,
    TransactionState,
)
from storage_engine.core.transactions import EXPIRATION_MS
from storage_engine.tests.core.coordinator_bench import OUT0, OUT1, CoordinatorBench

TIMEOUT_MS = 60_000
TX = "tx"

Producer = tuple[int, int]


class ProducerBench(CoordinatorBench):
    """Requests of producers with transactional ids."""

    def init(self, known: Producer = (-1, -1), *, timeout_ms=TIMEOUT_MS, replicate=True):
        return self.ask(
            lambda request: InitProducer(
                request=request,
                transactional_id=TX,
                timeout_ms=timeout_ms,
                now_ms=self.now_ms,
                fresh_producer_id=self.fresh_producer_id(),
                producer_id=known[0],
                producer_epoch=known[1],
            ),
            replicate=replicate,
        )

    def add(self, producer: Producer, *partitions: TopicPartition, replicate=True):
        return self.ask(
            lambda request: AddPartitions(
                request=request,
                transactional_id=TX,
                producer_id=producer[0],
                producer_epoch=producer[1],
                partitions=frozenset(partitions),
                now_ms=self.now_ms,
            ),
            replicate=replicate,
        )

    def verify(self, producer: Producer, *partitions: TopicPartition) -> ErrorCode:
        answer = self.ask(
            lambda request: VerifyPartitions(
                request=request,
                transactional_id=TX,
                producer_id=producer[0],
                producer_epoch=producer[1],
                partitions=frozenset(partitions),
            )
        )
        assert answer is not None
        return answer.error

    def end(self, producer: Producer, *, commits=True, bumps=False, replicate=True):
        return self.ask(
            lambda request: EndTransaction(
                request=request,
                transactional_id=TX,
                producer_id=producer[0],
                producer_epoch=producer[1],
                commits=commits,
                now_ms=self.now_ms,
                fresh_producer_id=self.fresh_producer_id(),
                bumps_epoch=bumps,
            ),
            replicate=replicate,
        )

    def started(self, known: Producer = (-1, -1)) -> Producer:
        """As a client does it: again, while the last transaction is being finished."""
        for _ in range(3):
            answer = self.init(known)
            assert answer is not None
            if answer.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            self.settle()
        assert answer.error is ErrorCode.NONE
        return answer.producer_id, answer.producer_epoch

    def record(self) -> TransactionRecord:
        record = self.coordinator.producers.get(TX)
        assert record is not None
        return record


def started() -> tuple[ProducerBench, Producer]:
    bench = ProducerBench()
    return bench, bench.started()


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("bumps", [True, False])
def test_a_transaction_ends_in_all_its_partitions(commits, bumps):
    bench, producer = started()
    assert bench.add(producer, OUT0).error is ErrorCode.NONE
    assert bench.add(producer, OUT1).error is ErrorCode.NONE
    ended = bench.end(producer, commits=commits, bumps=bumps)
    assert ended.error is ErrorCode.NONE
    assert (ended.producer_id, ended.producer_epoch) == ((producer[0], 1) if bumps else (-1, -1))
    bench.settle()
    assert bench.written == {(producer[0], OUT0): {commits}, (producer[0], OUT1): {commits}}
    state = TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
    assert (bench.record().state, bench.record().partitions) == (state, frozenset())


def test_nothing_is_answered_or_marked_before_it_is_replicated():
    bench = ProducerBench()
    assert bench.init(replicate=False) is None
    bench.replicate()
    producer = bench.answers[1].producer_id, 0
    assert bench.add(producer, OUT0, replicate=False) is None
    assert bench.add(producer, OUT0, replicate=False) is None
    assert bench.verify(producer, OUT0) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.end(producer, replicate=False) is None
    assert not bench.markers
    bench.fail_over()
    bench.replicate()
    assert bench.record().state is TransactionState.ONGOING


def test_the_next_transaction_waits_until_the_last_is_complete():
    bench, producer = started()
    bench.add(producer, OUT0, OUT1)
    bench.end(producer)
    assert bench.add(producer, OUT0).error is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.write_markers((producer[0], OUT0))
    assert bench.add(producer, OUT0).error is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.write_markers((producer[0], OUT1))
    assert bench.add(producer, OUT0, replicate=False).error is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.replicate()
    assert bench.add(producer, OUT0).error is ErrorCode.NONE


def test_acknowledgements_of_another_epoch_end_nothing():
    bench, producer = started()
    bench.add(producer, OUT0)
    bench.end(producer, bumps=True)
    for epoch in (producer[1], producer[1] + 2):
        bench.step(
            MarkersWritten(
                producer_id=producer[0],
                producer_epoch=epoch,
                partitions=frozenset({OUT0}),
                now_ms=0,
            )
        )
    assert bench.record().state is TransactionState.PREPARE_COMMIT


@pytest.mark.parametrize("pause", [0, 1])
@pytest.mark.parametrize("commits", [True, False])
def test_a_failover_sends_the_markers_again(commits, pause):
    bench, producer = started()
    bench.add(producer, OUT0, OUT1)
    bench.end(producer, commits=commits)
    for key in sorted(bench.markers)[:pause]:
        bench.write_markers(key)
    bench.fail_over()
    assert not bench.markers, "what the next coordinator read may be lost again"
    bench.settle()
    assert bench.written == {(producer[0], OUT0): {commits}, (producer[0], OUT1): {commits}}


def test_a_decision_that_only_the_next_coordinator_has_may_be_lost_still():
    bench, producer = started()
    bench.add(producer, OUT0)
    bench.end(producer, replicate=False)
    bench.fail_over(keep=1)
    assert bench.record().state is TransactionState.PREPARE_COMMIT
    assert bench.end(producer, replicate=False).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not bench.markers
    bench.fail_over()
    bench.replicate()
    assert bench.record().state is TransactionState.ONGOING
    bench.end(producer, commits=False)
    bench.settle()
    assert bench.written == {(producer[0], OUT0): {False}}


def test_a_new_instance_fences_the_old_one_and_aborts_its_transaction():
    bench, old = started()
    bench.add(old, OUT0)
    assert bench.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.end(old).error is ErrorCode.PRODUCER_FENCED
    new = bench.started()
    assert bench.written == {(old[0], OUT0): {False}}
    assert new == (old[0], 2), "one epoch for the fence, one for the new instance"
    assert bench.add(old, OUT0).error is ErrorCode.PRODUCER_FENCED
    assert bench.init(old).error is ErrorCode.PRODUCER_FENCED
    assert bench.add(new, OUT0).error is ErrorCode.NONE


def test_a_producer_goes_on_after_an_error_under_the_next_epoch():
    bench, producer = started()
    bumped = bench.started(producer)
    assert bumped == (producer[0], 1)
    assert bench.started(producer) == bumped, "the answer was lost: the same again"
    bench.add(bumped, OUT0)
    assert bench.init(producer).error is ErrorCode.PRODUCER_FENCED
    assert bench.record().state is TransactionState.ONGOING, "and it disturbs nobody"


def test_a_repeated_end_is_told_what_became_of_it():
    bench, producer = started()
    assert bench.end(producer).error is ErrorCode.INVALID_TXN_STATE
    bench.add(producer, OUT0)
    bench.end(producer)
    assert bench.end(producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.end(producer, commits=False).error is ErrorCode.INVALID_TXN_STATE
    bench.settle()
    assert bench.end(producer).error is ErrorCode.NONE
    assert bench.end(producer, commits=False).error is ErrorCode.INVALID_TXN_STATE


def test_with_epoch_bumps_a_late_end_does_not_touch_the_next_transaction():
    bench, first = started()
    bench.add(first, OUT0)
    answer = bench.end(first, bumps=True)
    second = answer.producer_id, answer.producer_epoch
    assert bench.end(first, bumps=True).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.end(second, bumps=True).error is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.settle()
    repeated = bench.end(first, bumps=True)
    assert (repeated.producer_id, repeated.producer_epoch) == second
    assert bench.end(first, commits=False, bumps=True).error is ErrorCode.INVALID_TXN_STATE
    bench.add(second, OUT0)
    assert bench.end(first, bumps=True).error is ErrorCode.PRODUCER_FENCED
    assert bench.verify(first, OUT0) is ErrorCode.PRODUCER_FENCED
    assert bench.verify(second, OUT0) is ErrorCode.NONE


def test_an_abort_of_nothing_raises_the_epoch():
    bench, producer = started()
    assert bench.end(producer, bumps=True).error is ErrorCode.INVALID_TXN_STATE
    answer = bench.end(producer, commits=False, bumps=True)
    assert (answer.producer_id, answer.producer_epoch) == (producer[0], 1)
    repeated = bench.end(producer, commits=False, bumps=True)
    assert repeated == replace(answer, request=repeated.request)


def used_up(bench: ProducerBench) -> Producer:
    """A producer with the last epoch that one is given."""
    key, record = bench.log[-1]
    assert isinstance(record, TransactionRecord)
    bench.log.append((key, replace(record, producer_epoch=LAST_CLIENT_EPOCH)))
    bench.replicated = len(bench.log)
    bench.fail_over()
    bench.replicate()
    return record.producer_id, LAST_CLIENT_EPOCH


def test_a_producer_id_whose_epochs_are_used_up_is_replaced_at_the_end_of_its_transaction():
    bench, _ = started()
    last = used_up(bench)
    bench.add(last, OUT0)
    ended = bench.end(last, bumps=True)
    assert ended.producer_id != last[0]
    assert ended.producer_epoch == 0
    bench.settle()
    assert bench.written == {(last[0], OUT0): {True}}
    repeated = bench.end(last, bumps=True)
    assert repeated == replace(ended, request=repeated.request)
    fresh = ended.producer_id, 0
    assert bench.add(fresh, OUT0).error is ErrorCode.NONE
    assert bench.end(last, bumps=True).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("knows_itself", [True, False])
def test_a_producer_id_whose_epochs_are_used_up_is_replaced_at_the_next_start(knows_itself):
    bench, _ = started()
    last = used_up(bench)
    fresh = bench.started(last if knows_itself else (-1, -1))
    assert fresh[0] != last[0]
    assert fresh[1] == 0
    if knows_itself:
        assert bench.started(last) == fresh, "the answer was lost: the same again"
    else:
        assert bench.init(last).error is ErrorCode.PRODUCER_FENCED


def test_a_fenced_producer_of_the_last_epoch_is_replaced():
    bench, _ = started()
    last = used_up(bench)
    bench.add(last, OUT0)
    bench.pass_time(TIMEOUT_MS)
    bench.settle()
    assert bench.written == {(last[0], OUT0): {False}}
    fresh = bench.started()
    assert fresh[0] != last[0]
    assert fresh[1] == 0


def test_a_transaction_that_takes_too_long_is_aborted_under_the_next_epoch():
    bench, producer = started()
    bench.add(producer, OUT0)
    bench.pass_time(TIMEOUT_MS - 1)
    bench.add(producer, OUT1)
    assert bench.record().state is TransactionState.ONGOING
    bench.fail_over()
    bench.replicate()
    bench.pass_time(1)
    assert not bench.markers
    bench.settle()
    assert bench.written == {(producer[0], OUT0): {False}, (producer[0], OUT1): {False}}
    assert bench.end(producer).error is ErrorCode.PRODUCER_FENCED
    assert bench.record().producer_epoch == 1


def test_an_id_that_nobody_uses_is_forgotten_and_an_open_one_is_not():
    bench, producer = started()
    bench.pass_time(EXPIRATION_MS - 1)
    bench.add(producer, OUT0)
    bench.end(producer)
    bench.settle()
    bench.pass_time(EXPIRATION_MS - 1)
    assert bench.coordinator.producers.get(TX) is not None
    bench.pass_time(1)
    assert bench.coordinator.producers.get(TX) is None
    assert bench.log[-1] == (TransactionalIdKey(TX), None)
    assert bench.end(producer).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.started()[0] != producer[0]


def test_requests_that_make_no_sense_are_refused():
    bench, producer = started()
    for timeout_ms in (0, -1, 24 * 3600 * 1000):
        refused = bench.init(timeout_ms=timeout_ms)
        assert refused.error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert bench.init((producer[0], -1)).error is ErrorCode.INVALID_REQUEST
    assert bench.init((producer[0] + 50, 0)).error is ErrorCode.PRODUCER_FENCED
    stranger = producer[0] + 50, 0
    assert bench.add(stranger, OUT0).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.end(stranger).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.verify(producer, OUT0) is ErrorCode.INVALID_TXN_STATE
    bench.add(producer, OUT0)
    assert bench.verify(producer, OUT0, OUT1) is ErrorCode.INVALID_TXN_STATE


class ProducersAtRandom(RuleBasedStateMachine):
    """Instances of one producer, some of them zombies, a coordinator that is lost at any record.

    The reference: each (producer id, epoch) that an instance was given ends one way everywhere, and
    the way of a commit that was answered is the commit.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bench = ProducerBench()
        self.instances: list[Producer] = []
        self.promised: list[tuple[int, int]] = []
        """(length of the log at the answer, producer id) of each commit that was answered."""

    @rule(known=st.booleans())
    def start(self, known):
        last = self.instances[-1] if known and self.instances else (-1, -1)
        answer = self.bench.init(last)
        if answer is not None and not answer.error:
            self.instances.append((answer.producer_id, answer.producer_epoch))

    @precondition(lambda self: self.instances)
    @rule(data=st.data(), out=st.sampled_from([OUT0, OUT1]), replicate=st.booleans())
    def enlist(self, data, out, replicate):
        self.bench.add(data.draw(st.sampled_from(self.instances)), out, replicate=replicate)

    @precondition(lambda self: self.instances)
    @rule(data=st.data(), commits=st.booleans(), bumps=st.booleans(), replicate=st.booleans())
    def end(self, data, commits, bumps, replicate):
        producer = data.draw(st.sampled_from(self.instances))
        open_before = self.bench.record().state is TransactionState.ONGOING
        answer = self.bench.end(producer, commits=commits, bumps=bumps, replicate=replicate)
        if answer is None or answer.error:
            return
        if bumps:
            self.instances.append((answer.producer_id, answer.producer_epoch))
        if open_before:
            assert self.bench.record().state.commits == commits
            assert self.bench.replicated == len(self.bench.log)

    @rule(keep=st.integers(0, 3))
    def fail_over(self, keep):
        self.bench.fail_over(keep=keep)

    @rule()
    def replicate(self):
        self.bench.replicate()

    @precondition(lambda self: self.bench.markers)
    @rule(data=st.data())
    def write_marker(self, data):
        key = data.draw(st.sampled_from(sorted(self.bench.markers)))
        entry = self.bench.record()
        assert entry.state.is_ending, "a marker for what is complete"
        decided = [
            record
            for _, record in self.bench.log[: self.bench.replicated]
            if record is not None and record.state.is_ending
        ]
        assert decided, "a marker of what may be lost"
        assert decided[-1].state.commits == self.bench.markers[key]
        self.bench.write_markers(key)

    @rule(ms=st.integers(1, TIMEOUT_MS))
    def pass_time(self, ms):
        self.bench.pass_time(ms)

    @invariant()
    def the_record_in_memory_is_the_newest_in_the_log(self):
        newest = self.bench.log[-1][1] if self.bench.log else None
        assert self.bench.coordinator.producers.get(TX) == newest

    @invariant()
    def the_log_takes_no_way_that_a_transaction_cannot_go(self):
        before = None
        for _, record in self.bench.log:
            assert record is not None
            if before is not None:
                assert record.state in _NEXT[before.state], (before, record)
                newer = record.producer_id > before.producer_id
                assert newer or record.producer_epoch >= before.producer_epoch
            before = record

    def teardown(self):
        """Once faults stop, every transaction ends."""
        self.bench.pass_time(TIMEOUT_MS)
        self.bench.settle()
        self.bench.pass_time(TIMEOUT_MS)
        self.bench.settle()
        for _, record in self.bench.coordinator.producers:
            assert record.state is TransactionState.EMPTY or record.state.is_complete


_NEXT = {
    TransactionState.EMPTY: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.COMPLETE_ABORT,
    },
    TransactionState.ONGOING: {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.COMPLETE_COMMIT},
    TransactionState.PREPARE_ABORT: {TransactionState.COMPLETE_ABORT},
    TransactionState.COMPLETE_COMMIT: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.COMPLETE_ABORT,
    },
    TransactionState.COMPLETE_ABORT: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.COMPLETE_ABORT,
    },
}

ProducersAtRandom.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestProducersAtRandom = ProducersAtRandom.TestCase
