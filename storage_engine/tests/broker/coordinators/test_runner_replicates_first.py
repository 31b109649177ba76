"""A transaction coordinator does nothing, neither answer nor marker, before its decision is
replicated: a failover would decide anew, and tear the transaction. Each case is also run with
coordinators that don't wait, which it must notice (KIP-98, R-SPARK2)."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.coordinators.runner import CoordinatorRunner
from storage_engine.core.coordinator_log import Replicated, StateLog
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis import abort_members, commit_batch
from storage_engine.protocol.messages import end_txn
from storage_engine.tests.broker.transactions import test_batch_commits as sink
from storage_engine.tests.broker.transactions.test_transactions import aborted, log_of, settle

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
FETCH_WAIT_MS = 3_000
CUT_OFF_MS = 2_000
TIMEOUT_MS = 4_000
"""The timeout of transactions that the next coordinator finds open."""


class TornError(AssertionError):
    """The decision was acted on and then lost."""


Apply = Callable[[ExitStack], None]


def takes_its_log_for_replicated(stack: ExitStack) -> None:
    """The driver of the core tells it that a record is replicated as soon as it is appended."""

    def note_all(self: CoordinatorRunner) -> None:
        if self._appended:
            number, _ = self._appended[-1]
            self._appended.clear()
            self.submit(Replicated(number=number))

    carry_out = CoordinatorRunner._carry_out

    def carry_out_and_note(self: CoordinatorRunner, effects, records, parts) -> None:
        carry_out(self, effects, records, parts)
        if self.coordinator is not None:
            self._ports.scheduler.call_soon(lambda: note_all(self))

    stack.enter_context(patch.object(CoordinatorRunner, "_note_replicated", note_all))
    stack.enter_context(patch.object(CoordinatorRunner, "_carry_out", carry_out_and_note))


def waits_for_nothing(stack: ExitStack) -> None:
    """The core does at once what waits for a record."""
    stack.enter_context(patch.object(StateLog, "after", lambda self, number, action: action()))


def answers_in_time_but_sends_markers_at_once(stack: ExitStack) -> None:
    """Readers see what the next coordinator may decide otherwise, before anybody is answered."""

    def after(self: StateLog, number: int, action: Callable[[], None]) -> None:
        is_an_answer = action.__qualname__.startswith("StateLog.answer")
        if self.in_flight(number) and is_an_answer:
            self._waiting.setdefault(number, []).append(action)
        else:
            action()

    stack.enter_context(patch.object(StateLog, "after", after))


BUGS = (
    takes_its_log_for_replicated,
    waits_for_nothing,
    answers_in_time_but_sends_markers_at_once,
)


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[[], SimulatedCluster]]:
    with ExitStack() as stack:

        def new() -> SimulatedCluster:
            made = SimulatedCluster(
                tmp_path,
                transaction_state_log_num_partitions="3",
                transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
            )
            stack.callback(made.close)
            for topic in ("a", "b"):
                assert made.create_topic(topic).error_code == 0
            return made

        yield new


def producer(cluster: SimulatedCluster) -> SimulatedProducer:
    made = SimulatedProducer(cluster, "p", timeout_ms=TIMEOUT_MS)
    made.init()
    return made


def commit_of_a_producer(cluster: SimulatedCluster) -> tuple:
    return producer(cluster), lambda one: (end_txn.API, 4, one.end_request(commits=True))


def abort_of_a_producer(cluster: SimulatedCluster) -> tuple:
    return producer(cluster), lambda one: (end_txn.API, 4, one.end_request(commits=False))


def commit_of_a_batch(cluster: SimulatedCluster) -> tuple:
    task = sink.joined(cluster, 0, timeout_ms=TIMEOUT_MS)
    return task, lambda one: (commit_batch.API, 0, sink.commit_request(0, one))


def abort_of_a_member(cluster: SimulatedCluster) -> tuple:
    task = sink.joined(cluster, 0, timeout_ms=TIMEOUT_MS)

    def request(one: sink.Task) -> tuple:
        message = abort_members.AbortMembersRequest(
            sink=sink.SINK, query=sink.QUERY, members=frozenset([one.member])
        )
        return abort_members.API, 0, message

    return task, request


ENDS = (commit_of_a_producer, abort_of_a_producer, commit_of_a_batch, abort_of_a_member)


def decide_and_lose_the_coordinator(cluster: SimulatedCluster, end: Callable) -> None:
    """The coordinator's followers can't fetch from it, the leaders of the data hear it. Raises
    TornError when anything comes of its decision before it dies."""
    one, request_of = end(cluster)
    one.add(A, B)
    coordinator = one.coordinator()
    for tp in (A, B):
        if cluster.state(tp).leader == coordinator:
            others = [b.id for b in cluster.brokers if b.id != coordinator]
            cluster.answer(cluster.reassign(tp, [*others, coordinator]))
            cluster.answer(cluster.elect_preferred(tp))
            cluster.loop.run_until(lambda tp=tp: cluster.state(tp).leader not in (-1, coordinator))
        one.write(tp, b"1")
    ends = {tp: log_of(cluster, tp).log.log_end_offset for tp in (A, B)}
    for broker in cluster.brokers:
        if broker.id != coordinator:
            cluster.network.hold_up(broker.id, coordinator)
    # The fetches that wait at the coordinator are answered, and none comes after them.
    cluster.loop.run_for(FETCH_WAIT_MS)
    answers = cluster.ask(coordinator, *request_of(one))
    cluster.loop.run_for(CUT_OFF_MS)
    assert cluster[coordinator].parts.coordinators.transactions.coordinator_of(
        one.transactional_id
    ), "decides"
    if answers:
        raise TornError("an answer left before its record was replicated")
    for tp, end_offset in ends.items():
        if log_of(cluster, tp).log.log_end_offset != end_offset:
            raise TornError(f"a marker was written to {tp} before its record was replicated")
    cluster[coordinator].kill()
    cluster.network.heal()


@pytest.mark.parametrize("end", ENDS)
def test_a_decision_that_is_not_replicated_does_nothing_and_can_be_made_again(new_cluster, end):
    cluster = new_cluster()
    decide_and_lose_the_coordinator(cluster, end)
    # The next one knows an open transaction, and its time runs out.
    settle(cluster, A, B)
    assert len(aborted(cluster, A)) == len(aborted(cluster, B)) == 1


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("end", ENDS)
def test_a_coordinator_that_acts_before_replication_is_noticed(new_cluster, end, bug):
    with ExitStack() as stack:
        bug(stack)
        with pytest.raises((TornError, KafkaError)) as noticed:
            decide_and_lose_the_coordinator(new_cluster(), end)
    assert noticed.type is TornError
