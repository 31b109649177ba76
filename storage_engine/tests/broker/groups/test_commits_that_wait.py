"""A commit of offsets waits while the group's coordinator reads its log. What was right when it
came may be wrong when it is stepped: its transaction has ended, or its topic is gone."""

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import TopicsDeleted, TransactionEnded
from storage_engine.protocol.messages import offset_commit
from storage_engine.tests.broker.groups.test_consumer_groups import offsets_partition
from storage_engine.tests.broker.groups.waiting_commits import (
    assert_nothing_is_open,
    cluster,
    code_of,
    enlist_offsets,
    group_with_an_offset,
    log_of_offsets,
    lose_the_coordinator,
    producer_in_transaction,
    send_offset,
    slow_loads,
)

__all__ = ["cluster", "slow_loads"]


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
