"""Transactions and producers as clients are told of them: DescribeProducers, DescribeTransactions,
ListTransactions."""

from types import SimpleNamespace
from typing import Any

import pytest

from storage_engine.broker.handlers.transactions.describe_transactions import _described_producers
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained import producer_table
from storage_engine.core.retained.producer_state import ProducerStates, SequencedBatch
from storage_engine.protocol.messages import (
    describe_producers,
    describe_transactions,
    list_transactions,
)
from storage_engine.tests.broker.transactions.test_transactions import (
    A,
    B,
    cluster,
    producer,
    settle,
)

__all__ = ["cluster"]

TP = TopicPartition("a", 0)


def with_producers(*ids: int) -> ProducerStates:
    states = ProducerStates()
    for producer_id in ids:
        states.record(producer_id, 0, SequencedBatch(0, 0, 0, 0, 1), now_ms=0)
    return states


def described(states: ProducerStates) -> Any:
    partition = SimpleNamespace(log=SimpleNamespace(producer_state=states))
    replicas: Any = SimpleNamespace(in_service=lambda tp: partition)
    return _described_producers(replicas, TP)


def test_one_producer_is_looked_at_in_each_step(monkeypatch):
    looked_at = []
    unpacked = producer_table.unpacked

    def counted(data: bytes) -> Any:
        looked_at.append(data)
        return unpacked(data)

    monkeypatch.setattr(producer_table, "unpacked", counted)
    steps = described(with_producers(*range(100)))
    for number in range(100):
        next(steps)
        assert len(looked_at) == number + 1
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert [each.producer_id for each in end.value.value.active_producers] == list(range(100))


def test_producers_that_go_and_come_between_the_steps_are_no_error():
    states = with_producers(1, 2, 3)
    steps = described(states)
    next(steps)
    states.put_back([], without=[2])
    states.record(4, 0, SequencedBatch(0, 0, 0, 0, 1), now_ms=0)
    next(steps)
    next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert [each.producer_id for each in end.value.value.active_producers] == [1, 3]


def test_leaders_tell_of_producers_and_of_what_they_have_open(cluster):
    first = producer(cluster)
    first.add(A)
    first.write(A, b"1")
    first.write(A, b"2")
    topic = describe_producers.DescribeProducersRequest.TopicRequest
    request = describe_producers.DescribeProducersRequest(
        topics=[topic(name="a", partition_indexes=[0, 9])]
    )

    def told(broker: int):
        answer = cluster.answer(cluster.ask(broker, describe_producers.API, 0, request))
        return answer.topics[0].partitions

    leader = cluster.state(A).leader
    known, unknown = told(leader)
    (active,) = known.active_producers
    assert (active.producer_id, active.producer_epoch) == (first.producer_id, first.epoch)
    assert (active.last_sequence, active.current_txn_start_offset) == (1, 0)
    assert (active.coordinator_epoch, active.last_timestamp >= 0) == (-1, True)
    assert ErrorCode.of(unknown.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    other = next(each for each in (1, 2, 3) if each != leader)
    cluster.loop.run_for(1_000)
    (copied,) = told(other)[0].active_producers
    assert (copied.producer_id, copied.last_sequence) == (first.producer_id, 1), "of a follower"
    first.end(commits=False)
    settle(cluster, A)
    (active,) = told(leader)[0].active_producers
    assert active.current_txn_start_offset == -1
    assert active.coordinator_epoch >= 0


def test_transactions_are_listed_and_described_by_their_coordinator(cluster):
    first = producer(cluster)
    first.add(A, B)
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=["p", "q"])
    coordinator = first.coordinator()
    rows = cluster.answer(
        cluster.ask(coordinator, describe_transactions.API, 0, request)
    ).transaction_states
    assert (rows[0].transaction_state, rows[0].producer_id) == ("Ongoing", first.producer_id)
    assert [(topic.topic, topic.partitions) for topic in rows[0].topics] == [("a", [0]), ("b", [0])]
    assert rows[1].error_code in (
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.NOT_COORDINATOR,
    )

    def listed(**filters) -> list[str]:
        every = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
        wanted = list_transactions.ListTransactionsRequest(**{**every, **filters})
        answer = cluster.answer(cluster.ask(coordinator, list_transactions.API, 1, wanted))
        return [each.transactional_id for each in answer.transaction_states]

    assert listed() == listed(state_filters=["Ongoing"]) == ["p"]
    assert listed(state_filters=["Empty"]) == listed(duration_filter=60_000) == []
    assert listed(producer_id_filters=[first.producer_id + 1]) == []
