"""One connection to a broker: the version of each request, and answers in their order."""

import pytest

from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.core.errors import DeadlineExceededError, KafkaError, UnsupportedVersionError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.blocking import wait_readable
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.list_offsets import API as LIST_OFFSETS
from storage_engine.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from storage_engine.protocol.apis.metadata import API as METADATA
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.protocol.apis.spec import VersionRange
from storage_engine.tests.client.fake_cluster import Fault

T0 = TopicPartition("t", 0)


def test_the_newest_common_version_is_used(fake):
    fake.api_versions[METADATA.key] = VersionRange(3, 5)
    fake.api_versions[18] = VersionRange(0, 2)
    fake.add_topic("t", [1])
    with Cluster(fake.bootstrap_servers) as cluster:
        assert list(cluster.metadata().topics) == ["t"]
        connection = cluster.take(1, Deadline.after(1000))
        assert connection.version_for(METADATA) == 5
        connection.close()


def test_an_api_that_the_broker_does_not_serve_is_an_error_that_names_both(fake):
    fake.api_versions[METADATA.key] = VersionRange(100, 101)
    with (
        Cluster(fake.bootstrap_servers) as cluster,
        pytest.raises(UnsupportedVersionError, match="serves Metadata in versions 100-101"),
    ):
        cluster.metadata()


def test_an_answer_is_not_taken_for_the_next_requests_after_one_that_came_too_late(fake, cluster):
    fake.add_topic("t", [1])
    cluster.list_offsets({T0: LATEST})
    fake.fault = lambda asked: Fault.SILENCE if asked.number == 2 else None
    request = ListOffsetsRequest([ListOffsetsPartition("t", 0, LATEST, -1)], isolation_level=0)
    silent, after = cluster.request_all(
        [(1, LIST_OFFSETS, request), (1, LIST_OFFSETS, request)], timeout_ms=200
    )
    assert isinstance(silent, DeadlineExceededError)
    assert isinstance(after, KafkaError)
    assert cluster.list_offsets({T0: LATEST}) == {T0: 0}


def test_answers_that_came_before_their_turn_are_received_first(fake, cluster):
    """As those before a log-in that is done again between two requests."""
    fake.add_topic("t", [1])
    cluster.metadata(["t"])
    deadline = Deadline.after(10_000)
    connection = cluster.take(1, deadline)

    def send(time_ms):
        asked = ListOffsetsRequest([ListOffsetsPartition("t", 0, time_ms)])
        connection.send(LIST_OFFSETS, asked, deadline)

    fake.partition("t").start_offset, fake.partition("t").end_offset = 3, 7
    for time_ms in (LATEST, EARLIEST):
        send(time_ms)
    for _ in range(2):
        found = connection.exchange_now(METADATA, MetadataRequest(topics=["t"]), deadline)
        assert [topic.topic for topic in found.topics] == ["t"]
    send(LATEST)
    assert connection.in_flight == 3
    assert wait_readable([connection], 0) == [connection]
    assert not connection.reusable
    answers = [connection.receive(deadline), connection.receive_nowait()]
    answers.append(connection.receive(deadline))
    assert [answer.partitions[0].offset for answer in answers] == [7, 3, 7]
    assert connection.reusable
    cluster.give_back(connection)
