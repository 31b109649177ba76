"""What waits in a broker: orders of the controller, fetches of clients that go away."""

from typing import Any

import pytest

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.cluster.order_gate import STEPS_PER_TURN, Orders
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.broker.replicas.purgatory import WaitList
from storage_engine.broker.requests.delayed_fetch import LONGEST_WAIT_MS, DelayedFetch
from storage_engine.broker.requests.fetch_reads import FetchRead
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import FetchPartition, FetchPartitionResponse, FetchRequest


class KnownConfigs:
    """Settings that are known at once, or when the test says so."""

    def __init__(self) -> None:
        self.slow = False
        self.held: list = []

    def ensure(self, topics, done) -> None:
        if self.slow:
            self.held.append(done)
        else:
            done()


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop()


def never(code: ErrorCode) -> None:
    raise AssertionError(code)


def order(done: list[Any], what: object, steps: int = 1):
    def apply():
        for _ in range(steps):
            done.append(what)
            yield

    return apply


def test_orders_are_carried_out_one_after_another(loop):
    configs = KnownConfigs()
    done: list[Any] = []
    orders = Orders(configs, loop)  # type: ignore[arg-type]
    configs.slow = True
    orders.submit({"t"}, order(done, 1), never)
    configs.slow = False
    orders.submit(set(), order(done, 2), never)
    loop.run_for(10)
    assert done == []
    configs.held.pop()()
    loop.run_for(10)
    assert done == [1, 2]


def test_a_long_queue_of_orders_is_no_deep_stack(loop):
    configs = KnownConfigs()
    done: list[Any] = []
    orders = Orders(configs, loop)  # type: ignore[arg-type]
    configs.slow = True
    orders.submit({"t"}, order(done, 0), never)
    configs.slow = False
    for number in range(1, 5000):
        orders.submit(set(), order(done, number), never)
    configs.held.pop()()
    loop.run_for(10)
    assert done == list(range(5000))


def test_an_order_that_fails_does_not_hold_up_the_next(loop):
    done: list[Any] = []
    orders = Orders(KnownConfigs(), loop)  # type: ignore[arg-type]

    def fail():
        yield
        raise ValueError("broken order")

    refused: list[Any] = []
    orders.submit(set(), fail, refused.append)
    orders.submit(set(), order(done, "next"), never)
    with pytest.raises(ValueError, match="broken order"):
        loop.run_for(1)
    loop.run_for(1)
    assert done == ["next"]
    assert refused == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_long_order_lets_the_loop_serve_others_and_the_next_order_wait(loop):
    done: list[Any] = []
    orders = Orders(KnownConfigs(), loop)  # type: ignore[arg-type]
    orders.submit(set(), order(done, "long", 3 * STEPS_PER_TURN), never)
    orders.submit(set(), order(done, "next"), never)
    loop.call_soon(lambda: loop.call_soon(lambda: done.append("other")))
    loop.run_for(10)
    assert 0 < done.index("other") < 3 * STEPS_PER_TURN
    assert done[-1] == "next"


class OnePartition:
    """A replica manager with one partition that never has data."""

    def __init__(self) -> None:
        self.data_waiters = WaitList()
        self.reads = 0
        self.role = Role.LEADER
        self.leader: object | None = self
        self.leader_epoch = self.high_watermark = self.log_start_offset = 0

    @property
    def log(self) -> "OnePartition":
        return self

    @property
    def current(self) -> "OnePartition":
        return self

    def get(self, _tp: TopicPartition) -> "OnePartition":
        return self

    def read(self, _request: FetchRequest, _partitions: object = None) -> FetchRead:
        """Whatever was news: it is to be told."""
        self.reads += 1
        result = FetchRead()
        result.failed = True
        return result


def waiting_fetch(loop: SimulatedLoop, max_wait_ms: int):
    partition = OnePartition()
    answers: list[FetchRead] = []
    gone: list[bool] = []
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=100,
        partitions=[FetchPartition("t", 0, 0, 100)],
    )
    nothing = FetchRead()
    nothing.partitions = [FetchPartitionResponse("t", 0, high_watermark=0, log_start_offset=0)]
    DelayedFetch(
        request,
        nothing,
        reader=partition,  # type: ignore[arg-type]
        replicas=partition,  # type: ignore[arg-type]
        scheduler=loop,
        finish=lambda _, read: answers.append(partition.read(request) if read is None else read),
        gone=lambda: bool(gone),
    )
    return partition, answers, gone


def test_a_fetch_is_answered_once_when_its_time_is_over(loop):
    partition, answers, _gone = waiting_fetch(loop, 500)
    loop.run_for(499)
    assert answers == []
    loop.run_for(1000)
    assert len(answers) == 1
    assert len(partition.data_waiters) == 0


def test_a_fetch_whose_client_is_gone_is_forgotten_and_not_read_for(loop):
    partition, answers, gone = waiting_fetch(loop, 500)
    gone.append(True)
    partition.high_watermark += 1
    partition.data_waiters.wake()
    loop.run_for(1000)
    assert (len(partition.data_waiters), partition.reads, answers) == (0, 0, [])


def test_no_client_makes_a_broker_wait_for_ever(loop):
    partition, _answers, _gone = waiting_fetch(loop, 2**31 - 1)
    loop.run_for(LONGEST_WAIT_MS)
    assert len(partition.data_waiters) == 0


@pytest.mark.parametrize(
    ("changed", "to"),
    [("high_watermark", 5), ("log_start_offset", 5), ("leader_epoch", 5), ("leader", None)],
)
def test_what_changed_while_other_partitions_were_read_ends_a_wait_at_its_begin(loop, changed, to):
    """A fetch of many partitions is read in several turns."""
    partition = OnePartition()
    named = [FetchPartition("t", number, 0, 100, current_leader_epoch=0) for number in range(2)]
    read = FetchRead()
    read.partitions = [
        FetchPartitionResponse("t", each.partition, high_watermark=0, log_start_offset=0)
        for each in named
    ]
    answers: list[FetchRead | None] = []

    def wait() -> DelayedFetch:
        return DelayedFetch(
            FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=100, partitions=named),
            read,
            reader=partition,  # type: ignore[arg-type]
            replicas=partition,  # type: ignore[arg-type]
            scheduler=loop,
            finish=lambda _, read: answers.append(read),
            gone=lambda: False,
        )

    assert not wait().is_done
    setattr(partition, changed, to)
    assert wait().is_done
    assert answers == [None]
    loop.run_for(500)
