"""Transactions of producers in the coordinator, in any order of events. Source: KIP-98, KIP-890."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from storage_engine.core.transactions.transaction_state import TransactionState
from storage_engine.tests.core.transactions.coordinator_bench import OUT0, OUT1
from storage_engine.tests.core.transactions.producer_bench import (
    TIMEOUT_MS,
    TX,
    Producer,
    ProducerBench,
)


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
    @rule(
        data=st.data(),
        out=st.sampled_from([OUT0, OUT1]),
        by_leader=st.booleans(),
        replicate=st.booleans(),
    )
    def enlist(self, data, out, by_leader, replicate):
        producer = data.draw(st.sampled_from(self.instances))
        answer = self.bench.add(producer, out, by_leader=by_leader, replicate=replicate)
        if answer is not None and not answer.error:
            record = self.bench.record()
            assert (record.producer_id, record.producer_epoch) == producer
            assert record.state is TransactionState.ONGOING and out in record.partitions
            assert self.bench.replicated == len(self.bench.log), "it may still be lost"

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
