"""Each partition's leader is asked, the next one when it has changed, and all others meanwhile."""

from types import SimpleNamespace

import pytest

from storage_engine.client.admin.requests import ask_leaders
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition

A, B, C = (TopicPartition("topic", number) for number in range(3))


class Leaders:
    """A cluster whose leaders move when they are looked up anew."""

    def __init__(self, before, after=None, *, deadline_ms=60_000):
        self.deadline_ms = deadline_ms
        self._leaders = before
        self._after = after or before
        self.refreshed = []

    def leader(self, tp):
        return SimpleNamespace(broker_id=self._leaders[tp])

    def refresh(self, topics):
        self.refreshed.append(topics)
        self._leaders = self._after


def moved(tp):
    return tp, KafkaError(f"{tp} has moved", ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_leader_is_asked_once_for_all_its_partitions_and_answers_keep_the_order():
    asked = []

    def ask(broker_id, partitions):
        asked.append((broker_id, partitions))
        return [(tp, tp.partition) for tp in partitions]

    cluster = Leaders({A: 1, B: 2, C: 1})
    assert list(ask_leaders(cluster, "Ask", [C, A, B, C], ask).items()) == [(C, 2), (A, 0), (B, 1)]
    assert asked == [(1, [C, A]), (2, [B])]
    assert not cluster.refreshed


def test_what_is_left_goes_to_the_next_leader():
    asked = []

    def ask(broker_id, partitions):
        asked.append((broker_id, partitions))
        if broker_id == 1:
            return [moved(tp) if tp == A else (tp, broker_id) for tp in partitions]
        return [(tp, broker_id) for tp in partitions]

    cluster = Leaders({A: 1, B: 1}, {A: 2, B: 2})
    assert ask_leaders(cluster, "Ask", [A, B], ask) == {A: 2, B: 1}
    assert asked == [(1, [A, B]), (2, [A])]
    assert cluster.refreshed == [{"topic"}]


@pytest.mark.parametrize(
    "failure",
    [KafkaError("gone", ErrorCode.NETWORK_EXCEPTION), DeadlineExceededError("no answer")],
)
def test_a_broker_that_is_gone_holds_nobody_else_up(failure):
    def ask(broker_id, partitions):
        if broker_id == 1:
            raise failure
        return [(tp, broker_id) for tp in partitions]

    cluster = Leaders({A: 1, B: 2}, {A: 3, B: 3})
    assert ask_leaders(cluster, "Ask", [A, B], ask) == {A: 3, B: 2}


def test_a_final_error_is_raised_though_another_partition_could_be_asked_again():
    def ask(broker_id, partitions):
        yield A, KafkaError("not allowed", ErrorCode.POLICY_VIOLATION)
        yield moved(B)

    with pytest.raises(KafkaError, match="not allowed"):
        ask_leaders(Leaders({A: 1, B: 1}), "Ask", [A, B], ask)


def test_the_last_error_is_told_when_the_time_is_over():
    cluster = Leaders({A: 1}, deadline_ms=1)
    with pytest.raises(DeadlineExceededError, match="Ask: topic-0 has moved"):
        ask_leaders(cluster, "Ask", [A], lambda *_: [moved(A)])


def test_a_partition_that_is_left_out_of_an_answer_is_an_error_and_no_endless_loop():
    with pytest.raises(KafkaError, match="broker 1 left out of its answer topic-1"):
        ask_leaders(Leaders({A: 1, B: 1}), "Ask", [A, B], lambda *_: [(A, 1)])
