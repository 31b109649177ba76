"""A fetch of many partitions that waits: its cost is counted in reads, not in time."""

from simulation.world.requests import fetch_request
from storage_engine.broker.requests.delayed_fetch import FEW_PARTITIONS, WaitingPartitions
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.tests.broker.support import cluster_fixture

TP = TopicPartition("t", 0)


cluster = cluster_fixture("t", brokers=1, has_record=True, default_replication_factor="1")


def reads_of(cluster, monkeypatch) -> list[TopicPartition]:
    """Every read of a partition from now on."""
    reader = cluster[1].parts.requests.reader
    reads = []
    read_partition = type(reader)._read_partition

    def counted(self, request, wanted, *rest):
        reads.append(TopicPartition(wanted.topic, wanted.partition))
        return read_partition(self, request, wanted, *rest)

    monkeypatch.setattr(type(reader), "_read_partition", counted)
    return reads


def waiting_for_much(names: list[tuple[str, int]]):
    request = fetch_request("t", 0, 1, wait_ms=60_000)
    part = request.partitions[0]
    partitions = [
        part._replace(topic=topic, partition=partition, fetch_offset=int(topic == "t"))
        for topic, partition in names
    ]
    return request._replace(partitions=partitions, min_bytes=2**31 - 1, max_bytes=2**31 - 1)


def test_a_fetch_that_names_a_partition_many_times_reads_it_once_for_each_append(
    cluster, monkeypatch
):
    reads = reads_of(cluster, monkeypatch)
    cluster.ask(1, FETCH, 11, waiting_for_much([("t", 0)] * 400))
    cluster.loop.run_for(20)
    assert len(reads) == 1
    cluster.produced(TP, b"another")
    cluster.loop.run_for(20)
    assert len(reads) <= 3, "once for each of the append and the high watermark"


def test_an_append_costs_a_fetch_of_many_partitions_one_read(cluster, monkeypatch):
    assert cluster.create_topic("many", 100).error_code == 0
    cluster.loop.run_for(1000)
    names = [("t", 0), *(("many", number) for number in range(100))]
    reads = reads_of(cluster, monkeypatch)
    answers = cluster.ask(1, FETCH, 11, waiting_for_much(names))
    cluster.loop.run_for(50)
    assert len(reads) == len(names)
    cluster.produced(TP, b"another")
    cluster.loop.run_for(50)
    assert not answers
    assert len(reads) <= len(names) + 2


def test_a_fetch_of_many_partitions_is_answered_when_they_have_enough_together(cluster):
    assert cluster.create_topic("many", 100).error_code == 0
    cluster.loop.run_for(1000)
    request = waiting_for_much([("many", number) for number in range(100)])
    partitions = [each._replace(fetch_offset=0) for each in request.partitions]
    answers = cluster.ask(1, FETCH, 11, request._replace(partitions=partitions, min_bytes=200))
    cluster.loop.run_for(50)
    for number in range(4):
        assert not answers
        assert cluster.produced(TopicPartition("many", number), b"x" * 5) == 0
        cluster.loop.run_for(10)
    (answer,) = answers
    assert [each.partition for each in answer.partitions if each.records] == [0, 1, 2, 3]


def test_when_many_partitions_are_waited_for_a_fetch_of_many_more_does_not_wait():
    waiting = WaitingPartitions(most=1000)
    assert waiting.has_room_for(1000)
    waiting.add(990)
    assert not waiting.has_room_for(FEW_PARTITIONS + 1)
    assert waiting.has_room_for(FEW_PARTITIONS)
    waiting.add(-990)
    assert waiting.has_room_for(1000)
