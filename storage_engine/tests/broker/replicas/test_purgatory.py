"""Requests that wait are answered once, whatever ends their wait, and none keeps another from it
(R-NET2)."""

from collections.abc import Callable

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.replicas.purgatory import DelayedAnswer, EndOfTurn, WaitList
from storage_engine.core.ids import TopicPartition

TIMEOUT_MS = 500
TP = TopicPartition("t", 0)


class Looking:
    """A consumer's fetch that notes when it is looked at, and does what the test says then."""

    def __init__(self, then: Callable[[], bool]) -> None:
        self.looks = 0
        self._then = then

    def try_complete(self) -> bool:
        self.looks += 1
        return self._then()


class Partition:
    """A partition of a request that is answered once all are settled."""

    def __init__(self, *, is_settled: bool = False) -> None:
        self.waiters = WaitList()
        self.is_settled = is_settled
        self.expired = 0

    def check(self) -> bool:
        return self.is_settled

    def expire(self) -> None:
        self.expired += 1

    def settle(self) -> None:
        self.is_settled = True
        self.waiters.wake()


def answer_of(loop: SimulatedLoop, *partitions: Partition) -> list[int]:
    """The moments at which the request was answered."""
    answered: list[int] = []
    DelayedAnswer(
        partitions,
        timeout_ms=TIMEOUT_MS,
        scheduler=loop,
        respond=lambda: answered.append(loop.now_ms),
    )
    return answered


def test_a_request_is_answered_with_its_last_partition_and_not_again_at_its_timeout():
    loop, partitions = SimulatedLoop(), [Partition(), Partition(is_settled=True), Partition()]
    answered = answer_of(loop, *partitions)
    partitions[0].settle()
    assert answered == []
    loop.run_for(TIMEOUT_MS - 1)
    partitions[2].settle()
    loop.run_for(TIMEOUT_MS)
    assert answered == [TIMEOUT_MS - 1]
    assert [each.expired for each in partitions] == [0, 0, 0]
    assert not any(len(each.waiters) for each in partitions)


def test_at_the_timeout_only_the_open_partitions_expire_and_their_news_comes_too_late():
    loop, partitions = SimulatedLoop(), [Partition(), Partition()]
    answered = answer_of(loop, *partitions)
    partitions[0].settle()
    loop.run_for(TIMEOUT_MS)
    assert answered == [TIMEOUT_MS]
    assert [each.expired for each in partitions] == [0, 1]
    assert len(partitions[1].waiters) == 0
    partitions[1].settle()
    assert len(answered) == 1


def test_a_request_of_which_nothing_is_open_does_not_wait():
    loop = SimulatedLoop()
    assert answer_of(loop, Partition(is_settled=True)) == [0]
    assert answer_of(loop) == [0]


def test_who_begins_to_wait_while_others_are_woken_is_looked_at_the_next_time():
    waiters = WaitList()
    later = Looking(lambda: True)

    def answered() -> bool:
        waiters.add(later)
        return True

    waiters.add(Looking(answered))
    waiters.wake()
    assert later.looks == 0 and len(waiters) == 1
    waiters.wake()
    assert later.looks == 1 and len(waiters) == 0


def test_work_at_the_end_of_a_turn_may_ask_for_more_in_the_next_one():
    loop, done = SimulatedLoop(), []
    end_of_turn = EndOfTurn(loop)

    def first() -> None:
        done.append("first")
        end_of_turn.call(TP, lambda: done.append("next turn"))

    end_of_turn.call(TP, first)
    end_of_turn.call(TP, lambda: done.append("second"))
    assert done == []
    loop.run_for(1)
    assert done == ["first", "second", "next turn"]
