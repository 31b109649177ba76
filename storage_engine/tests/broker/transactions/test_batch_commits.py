"""Micro-batches of the exactly-once sink in a simulated cluster: the rules of
docs/sink-protocol.md with a broker around them. The rules by themselves are judged in `tests/core`.
Source: R-SPARK2."""

from typing import Any
from uuid import UUID

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.core.retained.producer_table import is_single_use
from storage_engine.core.transactions.transaction_state import (
    LedgerKey,
    member_transactional_id,
    state_partition,
)
from storage_engine.protocol.apis import (
    abort_members,
    batch_heartbeat,
    commit_batch,
    describe_sinks,
    join_batch,
)
from storage_engine.protocol.messages import init_producer_id
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.transactions.test_transactions import (
    aborted,
    log_of,
    send_no_markers,
    settle,
)

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
SINK, QUERY = "sink", "query"
SOURCE = TopicPartition("source", 3)
STATE_PARTITIONS = 3
STATE = TopicPartition(TRANSACTION_STATE_TOPIC, state_partition(SINK, STATE_PARTITIONS))


cluster = cluster_fixture(
    "a",
    "b",
    transaction_state_log_num_partitions=str(STATE_PARTITIONS),
    transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
)


class Task(SimulatedProducer):
    """A task attempt, which begins with JoinBatch."""

    def __init__(self, cluster, batch: int, *, query: str = QUERY, timeout_ms: int = 60_000):
        super().__init__(cluster, member_transactional_id(SINK), timeout_ms=timeout_ms)
        self.query = query
        self.batch = batch
        self.origins: dict[TopicPartition, int] = {}

    def join(self) -> "Task":
        request = join_batch.JoinBatchRequest(
            sink=SINK,
            query=self.query,
            batch=self.batch,
            timeout_ms=self.timeout_ms,
            nonce=UUID(int=1),
        )
        answer = self.ask_coordinator(join_batch.API, 0, request, lambda a: [a.error_code])
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.origins = dict(answer.origins)
        return self

    def wrote(self, *partitions: TopicPartition) -> "Task":
        self.add(*partitions)
        for tp in partitions:
            self.write(tp, b"%d" % self.batch)
        return self

    @property
    def member(self) -> tuple[int, int]:
        return self.producer_id, self.epoch


def joined(cluster, batch: int, **how) -> Task:
    return Task(cluster, batch, **how).join()


def commit(cluster, batch: int, *tasks: Task, query: str = QUERY, drained: int = 0, origins=None):
    request = commit_request(batch, *tasks, query=query, drained=drained, origins=origins)
    return code_of(lambda: ask(cluster, commit_batch.API, request))


def commit_request(batch: int, *tasks: Task, query: str = QUERY, drained: int = 0, origins=None):
    return commit_batch.CommitBatchRequest(
        sink=SINK,
        query=query,
        batch=batch,
        members=frozenset(task.member for task in tasks),
        drained=drained,
        origins=origins or {},
    )


def ask(cluster, spec: Any, request: Any) -> Any:
    return Task(cluster, 0).ask_coordinator(spec, 0, request, lambda a: [a.error_code])


def code_of(act) -> ErrorCode:
    try:
        act()
    except KafkaError as failure:
        return failure.code
    return ErrorCode.NONE


def test_a_batch_is_committed_in_all_partitions_and_losers_are_aborted(cluster):
    first, second, loser = (joined(cluster, 0) for _ in range(3))
    assert all(is_single_use(task.producer_id) for task in (first, second, loser))
    first.wrote(A, B)
    loser.wrote(A)
    second.wrote(B)
    assert commit(cluster, 0, first, second) is ErrorCode.NONE
    settle(cluster, A, B)
    assert aborted(cluster, A) == [(loser.producer_id, 1)]
    assert aborted(cluster, B) == []
    assert code_of(lambda: joined(cluster, 0)) is ErrorCode.ALREADY_COMMITTED
    assert commit(cluster, 0, first, second) is ErrorCode.ALREADY_COMMITTED
    for task in (first, loser):
        assert code_of(lambda task=task: task.write(A, b"late")) is ErrorCode.INVALID_TXN_STATE


def test_a_log_forgets_members_with_their_markers(cluster):
    for batch in range(3):
        task = joined(cluster, batch).wrote(A)
        assert commit(cluster, batch, task) is ErrorCode.NONE
    settle(cluster, A)
    cluster.loop.run_for(2_000)
    for broker in cluster.brokers:
        assert len(broker.logs.logs[A].producer_state) == 0


def test_a_lost_member_and_a_drained_task_refuse_the_whole_batch(cluster):
    first, second = (joined(cluster, 0).wrote(A) for _ in range(2))
    given_up = abort_members.AbortMembersRequest(
        sink=SINK, query=QUERY, members=frozenset([second.member])
    )
    assert ask(cluster, abort_members.API, given_up).error_code == 0
    assert commit(cluster, 0, first, second) is ErrorCode.MEMBER_LOST
    assert commit(cluster, 0, first, drained=1) is ErrorCode.NOT_COMMITTED
    assert commit(cluster, 0, first) is ErrorCode.NONE
    settle(cluster, A)
    assert [producer for producer, _ in aborted(cluster, A)] == [second.producer_id]


def test_a_partition_shows_all_tasks_of_a_batch_at_once_however_far_its_followers_are(tmp_path):
    """A follower that fetches a batch at a time has some of the markers and not the others."""
    made = SimulatedCluster(
        tmp_path, transaction_state_log_num_partitions="1", replica_fetch_max_bytes="1"
    )
    assert made.create_topic("a").error_code == 0
    attempts = [joined(made, 0) for _ in range(6)]
    for attempt in attempts * 2:
        attempt.wrote(A)
    rows_end = log_of(made, A).log.log_end_offset
    seen: set[int] = set()

    def committed() -> bool:
        led = log_of(made, A)
        seen.add(led.last_stable_offset)
        return led.last_stable_offset == led.log.log_end_offset

    # The second one lost; its rows are among the others'.
    request = commit_request(0, attempts[0], *attempts[2:])
    answers = made.ask(attempts[0].coordinator(), commit_batch.API, 0, request)
    made.loop.run_until(committed)
    assert made.answer(answers).error_code == 0
    assert seen == {0, rows_end + len(attempts)}
    made.close()


def test_origins_travel_with_the_commit_to_the_next_join(cluster):
    task = joined(cluster, 0).wrote(A)
    assert task.origins == {}
    assert commit(cluster, 0, task, origins={SOURCE: 41}) is ErrorCode.NONE
    assert joined(cluster, 0, query="another").origins == {SOURCE: 41}


def test_a_coordinator_that_dies_between_the_record_and_the_markers_loses_nothing(cluster):
    task, loser = (joined(cluster, 0).wrote(A, B) for _ in range(2))
    coordinator = cluster[task.coordinator()]
    send_no_markers(coordinator)
    assert commit(cluster, 0, task) is ErrorCode.NONE
    assert log_of(cluster, A).last_stable_offset == log_of(cluster, B).last_stable_offset == 0
    later = joined(cluster, 1)
    answers = cluster.ask(coordinator.id, commit_batch.API, 0, commit_request(1, later))
    busy = ErrorCode.of(cluster.answer(answers).error_code)
    assert busy is ErrorCode.CONCURRENT_TRANSACTIONS, "batches keep their order"
    coordinator.kill()
    assert commit(cluster, 0, task) is ErrorCode.ALREADY_COMMITTED
    settle(cluster, A, B)
    for tp in (A, B):
        assert [producer for producer, _ in aborted(cluster, tp)] == [loser.producer_id]
    assert commit(cluster, 1, later.wrote(A)) is ErrorCode.NONE


def test_a_commit_that_is_not_replicated_is_not_answered_and_can_be_asked_again(cluster):
    task = joined(cluster, 0).wrote(A)
    old = cluster[task.coordinator()]
    others = [broker.id for broker in cluster.brokers if broker is not old]
    for other in others:
        cluster.network.cut(old.id, other)
    answers = cluster.ask(old.id, commit_batch.API, 0, commit_request(0, task))
    cluster.loop.run_for(3_000)
    assert not answers
    old.kill()
    cluster.network.heal()
    assert commit(cluster, 0, task) in (ErrorCode.NONE, ErrorCode.ALREADY_COMMITTED)
    settle(cluster, A)
    assert aborted(cluster, A) == []
    ledger = cluster[task.coordinator()].parts.coordinators.transactions.coordinator_of(
        task.transactional_id
    )
    assert ledger.batches.ledger(LedgerKey(SINK, QUERY)).last == 0


def test_a_batch_times_out_as_a_whole_and_a_heartbeat_of_any_task_prevents_it(cluster):
    fast = joined(cluster, 0, timeout_ms=3_000).wrote(A)
    beat = batch_heartbeat.BatchHeartbeatRequest(sink=SINK, query=QUERY, batch=0)
    for _ in range(4):
        cluster.loop.run_for(1_500)
        assert ask(cluster, batch_heartbeat.API, beat).error_code == 0
    assert log_of(cluster, A).last_stable_offset == 0
    settle(cluster, A)
    assert aborted(cluster, A) == [(fast.producer_id, 0)]
    assert commit(cluster, 0, fast) is ErrorCode.MEMBER_LOST
    assert code_of(lambda: ask(cluster, batch_heartbeat.API, beat)) is ErrorCode.INVALID_TXN_STATE


def test_many_attempts_that_write_at_once_are_verified_each_for_itself(cluster):
    """They have one transactional id."""
    tasks = [joined(cluster, 0) for _ in range(6)]
    for task in tasks[::2]:
        task.add(A)
    sent = [task.send(A, b"%d" % number, 0) for number, task in enumerate(tasks)]
    codes = [ErrorCode.of(cluster.answer(each).partitions[0].error_code) for each in sent]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE] * 3
    assert commit(cluster, 0, *tasks[::2]) is ErrorCode.NONE
    settle(cluster, A)


def test_members_are_no_transactional_producers_and_names_are_needed(cluster):
    request = init_producer_id.InitProducerIdRequest(transactional_id=member_transactional_id(SINK))
    answer = cluster.answer(cluster.ask(1, init_producer_id.API, 4, request))
    assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_REQUEST
    assert code_of(lambda: joined(cluster, -1)) is ErrorCode.INVALID_REQUEST
    assert code_of(lambda: joined(cluster, 0, query="")) is ErrorCode.INVALID_REQUEST


def test_a_sink_is_described_by_its_commits_and_open_attempts_and_nothing_is_changed(cluster):
    first, open_one = joined(cluster, 0).wrote(A, B), joined(cluster, 1).wrote(A)
    other = joined(cluster, 7, query="other")
    assert commit(cluster, 0, first) is ErrorCode.NONE

    def described(**wanted) -> describe_sinks.DescribeSinksResponse:
        request = describe_sinks.DescribeSinksRequest(**wanted)
        return ask(cluster, describe_sinks.API, request)

    of_other, of_query = sorted(described().queries, key=lambda each: each.query)
    assert (of_other.last, of_other.members_total) == (describe_sinks.NEVER, 1)
    assert (of_query.sink, of_query.query, of_query.last) == (SINK, QUERY, 0)
    cluster.loop.run_for(1_000)
    (again,) = described(producers=[open_one.producer_id]).queries
    members = {each.producer_id: each for each in again.members}
    assert members[open_one.producer_id].partitions == [A]
    assert members[open_one.producer_id].batch == 1
    assert members[open_one.producer_id].idle_ms >= 1_000
    assert described(sinks=["nobody"]).queries == []
    limited = described(most=1)
    assert limited.more and len(limited.queries) == 1
    with pytest.raises(KafkaError):
        described(sinks=["s"] * (describe_sinks.MOST_NAMES + 1))
    assert commit(cluster, 7, other, query="other") is ErrorCode.NONE
