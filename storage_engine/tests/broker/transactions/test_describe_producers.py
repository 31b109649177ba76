"""DescribeProducers of a partition with many producers, which clients may make up."""

from types import SimpleNamespace
from typing import Any

import pytest

from storage_engine.broker.handlers.transactions.describe_transactions import _described_producers
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained import producer_table
from storage_engine.core.retained.producer_state import ProducerStates, SequencedBatch

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
