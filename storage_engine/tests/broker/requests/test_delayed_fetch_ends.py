"""What ends the wait of a consumer's fetch: its time, news of a partition, or a client that is
gone."""

import pytest

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.broker.replicas.purgatory import WaitList
from storage_engine.broker.requests.delayed_fetch import LONGEST_WAIT_MS, DelayedFetch
from storage_engine.broker.requests.fetch_reads import FetchRead
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import FetchPartition, FetchPartitionResponse, FetchRequest


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop()


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
