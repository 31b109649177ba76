"""When a fetch is answered at once: the four conditions of R-NET2, and what else ends its
wait (R-NET2)."""

from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.network import SimulatedConnection
from simulation.world.requests import fetch_request
from storage_engine.broker.requests.fetch_reads import PartitionReader
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.log.files import segment_files
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchRequest

TP = TopicPartition("t", 0)
WAIT_MS = 20_000
AT_ONCE_MS = 20
"""A few hops of the simulated network."""


class Fetches:
    """Sends fetches to the leader of a partition with one record."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        cluster.loop.run_for(1000)
        self.leader = cluster.state(TP).leader

    def request(self, offset: int, *, partition: int = 0, wait_ms: int = WAIT_MS) -> FetchRequest:
        return fetch_request(TP.topic, partition, offset, wait_ms=wait_ms)

    def send(self, request: FetchRequest) -> list[Any]:
        return self.cluster.ask(self.leader, FETCH, 11, request)

    def answered_after_ms(self, answers: list[Any]) -> int:
        loop = self.cluster.loop
        started_ms = loop.now_ms
        self.cluster.answer(answers)
        return loop.now_ms - started_ms

    def takes_ms(self, request: FetchRequest) -> int:
        return self.answered_after_ms(self.send(request))


@pytest.fixture
def fetches(topic) -> Fetches:
    return Fetches(topic)


def test_condition_1_a_fetch_that_wants_no_wait_is_answered_at_once(fetches):
    assert fetches.takes_ms(fetches.request(1, wait_ms=0)) < AT_ONCE_MS


def test_condition_2_a_fetch_that_asks_for_no_partition_is_answered_at_once(fetches):
    assert fetches.takes_ms(fetches.request(1)._replace(partitions=[])) < AT_ONCE_MS


def test_condition_3_a_fetch_with_enough_bytes_is_answered_at_once(fetches):
    assert fetches.takes_ms(fetches.request(0)) < AT_ONCE_MS


def test_condition_4_a_fetch_that_fails_is_answered_at_once(fetches):
    answers = fetches.send(fetches.request(0, partition=7))
    assert fetches.answered_after_ms(answers) < AT_ONCE_MS
    code = ErrorCode.of(answers[0].partitions[0].error_code)
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_that_can_not_be_answered_when_its_time_is_over_ends_its_connection(
    fetches, monkeypatch
):
    """Else its client would wait for an answer that nobody makes any more."""
    ended: list[Exception] = []
    monkeypatch.setattr(
        SimulatedConnection, "request_failed", lambda _connection, error: ended.append(error)
    )
    fetches.send(fetches.request(1))
    fetches.cluster.loop.run_for(WAIT_MS // 2)
    assert not ended
    failure = RuntimeError("a fault of ours")

    def failing(*_args: object, **_options: object) -> None:
        raise failure

    monkeypatch.setattr(PartitionReader, "read", failing)
    fetches.cluster.loop.run_for(WAIT_MS)
    assert failure in ended


def test_any_other_fetch_waits_for_its_time_to_be_over(fetches):
    took_ms = fetches.takes_ms(fetches.request(1))
    assert WAIT_MS <= took_ms < WAIT_MS + AT_ONCE_MS


def test_too_few_bytes_are_waited_for_until_there_are_enough(fetches):
    least = len(fetches.cluster.answer(fetches.send(fetches.request(0))).partitions[0].records) + 1
    answers = fetches.send(fetches.request(0)._replace(min_bytes=least))
    fetches.cluster.loop.run_for(1000)
    assert not answers
    fetches.cluster.produced(TP, b"another")
    assert fetches.answered_after_ms(answers) < AT_ONCE_MS
    assert b"another" in bytes(answers[0].partitions[0].records)


def test_a_leader_that_is_replaced_ends_the_wait(fetches):
    answers = fetches.send(fetches.request(1)._replace(max_wait_ms=60_000))
    fetches.cluster.loop.run_for(100)
    fetches.cluster[fetches.leader].session.cut_off()
    epoch = fetches.cluster.state(TP).leader_epoch
    fetches.cluster.loop.run_until(lambda: fetches.cluster.state(TP).leader_epoch > epoch)
    fetches.cluster[fetches.leader].session.reconnect()
    assert fetches.answered_after_ms(answers) < 10_000
    code = ErrorCode.of(answers[0].partitions[0].error_code)
    assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def as_follower(fetches: Fetches, offset: int) -> FetchRequest:
    """The fetch of a broker that is no replica: the real followers are not disturbed."""
    request = fetches.request(offset)
    epoch = fetches.cluster.state(TP).leader_epoch
    partitions = [each._replace(current_leader_epoch=epoch) for each in request.partitions]
    return request._replace(replica_id=9, partitions=partitions)


def test_a_followers_fetch_from_the_end_is_answered_by_the_next_record(fetches):
    answers = fetches.send(as_follower(fetches, 1))
    fetches.cluster.loop.run_for(1000)
    assert not answers
    fetches.cluster.produced(TP, b"another")
    assert fetches.answered_after_ms(answers) < AT_ONCE_MS
    assert b"another" in bytes(answers[0].partitions[0].records)


def test_a_followers_fetch_ends_when_the_leader_goes_on_under_another_epoch(fetches):
    answers = fetches.send(as_follower(fetches, 1)._replace(max_wait_ms=60_000))
    fetches.cluster.loop.run_for(100)
    other = next(b for b in (1, 2, 3) if b != fetches.leader)
    fetches.cluster[other].kill(session_ends_at_once=True)
    assert fetches.answered_after_ms(answers) < 10_000
    assert ErrorCode.of(answers[0].partitions[0].error_code) is ErrorCode.FENCED_LEADER_EPOCH
    assert fetches.cluster.state(TP).leader == fetches.leader


def test_a_high_watermark_that_moves_costs_waiting_followers_no_read(fetches, monkeypatch):
    reads: list[int] = []
    read = PartitionReader.read

    def watched(reader: Any, request: FetchRequest, *args: Any, **options: Any) -> Any:
        reads.append(request.replica_id)
        return read(reader, request, *args, **options)

    monkeypatch.setattr(PartitionReader, "read", watched)
    # So that no long poll ends meanwhile.
    fetches.cluster.loop.run_for(100)
    reads.clear()
    fetches.cluster.produced(TP, b"another")
    # When the record comes. A fetch for the next one finds nothing, and is not read for.
    followers = [b for b in (1, 2, 3) if b != fetches.leader]
    assert sorted(each for each in reads if each >= 0) == sorted(followers)


def reads_of(monkeypatch, owner: Any, name: str) -> list[Any]:
    """The arguments of each call of a method from now on."""
    calls: list[Any] = []
    method = getattr(owner, name)

    def watched(*args: Any, **options: Any) -> Any:
        calls.append((args, options))
        return method(*args, **options)

    monkeypatch.setattr(owner, name, watched)
    return calls


@pytest.mark.parametrize("committed_only", [False, True])
@pytest.mark.parametrize("partitions", [1, 2])
def test_an_append_alone_costs_a_waiting_consumer_no_read(
    tmp_path, monkeypatch, committed_only, partitions
):
    cluster = SimulatedCluster(tmp_path, default_replication_factor="3")
    assert cluster.create_topic("t", partitions).error_code == 0
    cluster.loop.run_for(1000)
    leader = cluster.state(TP).leader
    request = fetch_request("t", 0, 0, wait_ms=WAIT_MS, committed_only=committed_only)
    named = [request.partitions[0]._replace(partition=n) for n in range(partitions)]
    answers = cluster.ask(leader, FETCH, 11, request._replace(partitions=named, replica_id=-2))
    cluster.loop.run_for(100)
    reads = reads_of(monkeypatch, PartitionReader, "read")
    cluster.produced(TP, b"record")
    cluster.answer(answers)
    cluster.close()
    assert answers[0].partitions[0].high_watermark == 1
    # When the high watermark has moved; of several partitions that one is looked at, then all.
    consumers = [args for args, _ in reads if args[1].replica_id < 0]
    assert len(consumers) == (1 if partitions == 1 else 2)


def test_followers_that_are_told_of_a_batch_share_the_read_and_nothing_is_kept(
    fetches, monkeypatch
):
    fetches.cluster.loop.run_for(100)
    reads = reads_of(monkeypatch, segment_files.LogFile, "read_cached")
    fetches.cluster.produced(TP, b"another")
    fetches.cluster.loop.run_for(100)
    assert len(reads) == 1
    partition = fetches.cluster[fetches.leader].replicas.get(TP)
    assert partition.log.reads.shared is None


def test_followers_that_are_told_of_a_batch_get_it_whole_and_alike(fetches):
    for number in range(5):
        fetches.cluster.produced(TP, b"record %d" % number)
    fetches.cluster.loop.run_for(1000)
    logs = [broker.replicas.get(TP).log for broker in fetches.cluster.brokers]
    first, *others = [bytes(log.reads.read(0, max_bytes=1 << 20).read_bytes()) for log in logs]
    assert [log.log_end_offset for log in logs] == [6, 6, 6]
    assert others == [first, first]
