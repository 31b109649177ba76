"""A commit of offsets waits while the group's coordinator reads its log. What was right when it
came may be wrong when it is stepped: its transaction has ended, or its topic is gone."""

from typing import Any

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.coordinators.state_load import StateLoad
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import TopicsDeleted, TransactionEnded
from storage_engine.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.protocol.messages import add_offsets_to_txn, offset_commit, txn_offset_commit
from storage_engine.protocol.state import group_batches
from storage_engine.tests.broker.groups.test_consumer_groups import (
    GROUP,
    PARTITIONS,
    GroupClient,
    offsets_partition,
)
from storage_engine.tests.broker.support import cluster_fixture

LOAD_MS = 4_000
"""Less than requests wait for a load."""


cluster = cluster_fixture(
    "a",
    offsets_topic_num_partitions=str(PARTITIONS),
    transaction_state_log_num_partitions=str(PARTITIONS),
    min_insync_replicas="2",
    auto_leader_rebalance_enable="false",
)


@pytest.fixture
def slow_loads(cluster, monkeypatch) -> None:
    """From now on it takes seconds to read a log of offsets."""
    begin = StateLoad._begin

    def begin_later(self: StateLoad, codec: Any) -> None:
        wait_ms = LOAD_MS if codec is group_batches else 0
        cluster.loop.call_later(wait_ms, lambda: begin(self, codec))

    monkeypatch.setattr(StateLoad, "_begin", begin_later)


def group_with_an_offset(cluster: SimulatedCluster) -> GroupClient:
    client = GroupClient(cluster)
    assert client.commit(1) is ErrorCode.NONE
    return client


def producer_in_transaction(cluster: SimulatedCluster) -> SimulatedProducer:
    """Whose transaction has the group's offsets, and whose coordinator is not the group's."""
    for number in range(50):
        made = SimulatedProducer(cluster, f"p{number}")
        made.init()
        if made.coordinator() != cluster.state(offsets_partition()).leader:
            break
    enlist_offsets(made)
    return made


def enlist_offsets(producer: SimulatedProducer) -> None:
    request = add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=GROUP,
    )
    producer.ask_coordinator(add_offsets_to_txn.API, 3, request, lambda a: [a.error_code])


def offset_in_transaction(producer: SimulatedProducer, offset: int) -> Any:
    item = txn_offset_commit.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition = item.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=GROUP,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[item(name="a", partitions=[partition])],
    )


def send_offset(producer: SimulatedProducer, offset: int) -> list[Any]:
    cluster = producer.cluster
    coordinator = cluster.state(offsets_partition()).leader
    request = offset_in_transaction(producer, offset)
    return cluster.ask(coordinator, txn_offset_commit.API, 3, request)


def code_of(cluster: SimulatedCluster, answers: list[Any]) -> ErrorCode:
    return ErrorCode.of(cluster.answer(answers).topics[0].partitions[0].error_code)


def log_of_offsets(cluster: SimulatedCluster) -> Any:
    """The replica that leads."""
    tp = offsets_partition()
    return cluster[cluster.state(tp).leader].replicas.get(tp)


def lose_the_coordinator(cluster: SimulatedCluster) -> None:
    """Until another broker begins to read the log."""
    tp = offsets_partition()
    old = cluster.state(tp).leader
    cluster[old].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: cluster.state(tp).leader not in (-1, old))
    cluster.loop.run_until(lambda: log_of_offsets(cluster).leader is not None)
    cluster.loop.run_for(100)


def assert_nothing_is_open(cluster: SimulatedCluster) -> None:
    led = log_of_offsets(cluster)
    assert led.log.producer_state.transactions.ongoing == {}
    assert led.last_stable_offset == led.log.log_end_offset


def test_offsets_that_wait_for_the_coordinator_are_not_written_behind_their_marker(
    cluster, slow_loads
):
    client = group_with_an_offset(cluster)
    producer = producer_in_transaction(cluster)
    lose_the_coordinator(cluster)
    answers = send_offset(producer, 5)
    cluster.loop.run_for(800)
    assert not answers
    # The application has given up.
    producer.end(commits=False)
    assert not answers
    code = code_of(cluster, answers)
    assert code.retriable
    cluster.loop.run_for(20_000)
    assert_nothing_is_open(cluster)
    assert client.offset(require_stable=True) == 1
    enlist_offsets(producer)
    assert code_of(cluster, send_offset(producer, 6)) is ErrorCode.NONE
    producer.end(commits=True)
    cluster.loop.run_for(1_000)
    assert client.offset(require_stable=True) == 6


def test_offsets_that_wait_do_not_go_to_the_next_transaction_of_the_same_epoch(cluster, slow_loads):
    client = group_with_an_offset(cluster)
    producer = producer_in_transaction(cluster)
    lose_the_coordinator(cluster)
    given_up = send_offset(producer, 5)
    cluster.loop.run_for(100)
    producer.end(commits=False)
    enlist_offsets(producer)
    # The leader asks for the next transaction, too, so that the guard of the partition is open.
    led = log_of_offsets(cluster)
    answers = send_offset(producer, 6)
    opened = led.guards.is_open
    cluster.loop.run_until(lambda: opened(producer.producer_id, producer.epoch))
    assert not given_up
    assert code_of(cluster, given_up) is not ErrorCode.NONE
    assert code_of(cluster, answers) is ErrorCode.NONE
    producer.end(commits=True)
    cluster.loop.run_for(1_000)
    assert client.offset(require_stable=True) == 6
    pending = led.log.producer_state.transactions.ongoing
    assert pending == {}
    # One batch for the first commit, a marker, a batch, a marker.
    assert led.log.log_end_offset == 4


def test_a_coordinator_that_leads_on_goes_on_when_a_follower_dies(cluster, slow_loads):
    client = group_with_an_offset(cluster)
    producer = producer_in_transaction(cluster)
    led = log_of_offsets(cluster)
    coordinator, epoch = led.leader_id, led.leader_epoch
    follower = ({1, 2, 3} - {coordinator, producer.coordinator()}).pop()
    cluster[follower].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: led.leader_epoch > epoch)
    assert led.leader_id == coordinator
    answers = send_offset(producer, 5)
    cluster.loop.run_for(LOAD_MS // 4)
    assert answers
    assert code_of(cluster, answers) is ErrorCode.NONE
    producer.end(commits=True)
    cluster.loop.run_for(1_000)
    assert_nothing_is_open(cluster)
    assert client.offset(require_stable=True) == 5


def test_members_keep_their_generation_when_a_follower_dies(cluster, slow_loads):
    client = GroupClient(cluster)
    member = client.enter()
    led = log_of_offsets(cluster)
    epoch = led.leader_epoch
    follower = ({1, 2, 3} - {led.leader_id}).pop()
    cluster[follower].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: led.leader_epoch > epoch)
    began_ms = cluster.loop.now_ms
    assert client.heartbeat(member) is ErrorCode.NONE
    assert cluster.loop.now_ms - began_ms < LOAD_MS


def test_markers_of_a_coordinator_that_leads_on_carry_its_present_epoch(cluster):
    group_with_an_offset(cluster)
    producer = producer_in_transaction(cluster)
    tp = TopicPartition("a", 0)
    producer.add(tp)
    producer.write(tp, b"1")
    broker = cluster[producer.coordinator()]
    number = state_partition(producer.transactional_id, PARTITIONS)
    led = broker.replicas.get(TopicPartition(TRANSACTION_STATE_TOPIC, number))
    before = led.leader_epoch
    state = cluster.state(tp)
    followers = {1, 2, 3} - {broker.id, state.leader}
    cluster[followers.pop()].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: led.leader_epoch == before + 1)
    producer.end(commits=True)
    cluster.loop.run_for(2_000)
    hosted = cluster[cluster.state(tp).leader].replicas.get(tp)
    entry = hosted.log.producer_state.get(producer.producer_id)
    assert entry.coordinator_epoch == before + 1


def test_an_epoch_that_was_missed_has_the_log_read_again(cluster):
    client = group_with_an_offset(cluster)
    led = log_of_offsets(cluster)
    runners = cluster[led.leader_id].parts.coordinators.groups._runners
    runner = runners[led.topic_partition]
    # As if the controller's order for the epoch between had been lost: another may have led.
    runner.leader_epoch -= 1
    epoch = led.leader_epoch
    follower = ({1, 2, 3} - {led.leader_id}).pop()
    cluster[follower].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: led.leader_epoch > epoch)
    cluster.loop.run_for(2_000)
    assert runners[led.topic_partition] is not runner
    assert client.offset() == 1


def test_offsets_that_wait_are_not_kept_for_a_topic_that_is_deleted_meanwhile(cluster, slow_loads):
    client = group_with_an_offset(cluster)
    lose_the_coordinator(cluster)
    coordinator = cluster.state(offsets_partition()).leader
    answers = cluster.ask(coordinator, offset_commit.API, 8, client.commit_request(9))
    cluster.loop.run_for(100)
    cluster.delete_topic("a")
    known = cluster[coordinator].metadata
    cluster.loop.run_until(lambda: not known.partitions("a"))
    assert not answers
    assert code_of(cluster, answers) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # Nor that of before, which went with the topic.
    assert client.offset() == -1


def test_of_two_ends_of_a_producers_transactions_the_first_counts_first(cluster, monkeypatch):
    """The first came during the load, behind something that has to write, and replicas are missing
    after the load. What it has committed must not be dropped with the abort of the next one."""
    client = group_with_an_offset(cluster)
    producer = producer_in_transaction(cluster)
    assert code_of(cluster, send_offset(producer, 5)) is ErrorCode.NONE
    led = log_of_offsets(cluster)
    runner = cluster[led.leader_id].parts.coordinators.groups._runners[led.topic_partition]
    coordinator, runner.coordinator = runner.coordinator, None
    runner.submit(TopicsDeleted(topics=frozenset({"b"})))
    runner.submit(TransactionEnded(producer_id=producer.producer_id, commits=True))
    runner.coordinator = coordinator
    monkeypatch.setattr(HostedPartition, "in_sync_count", 1)
    cluster.loop.run_for(1_000)
    runner.submit(TransactionEnded(producer_id=producer.producer_id, commits=False))
    monkeypatch.undo()
    cluster.loop.run_for(1_000)
    assert client.offset(require_stable=True) == 5
