"""Fetches that name a topic by its id (KIP-516): of a topic that was created again since, nothing
is read in the name of the old one.
"""

from uuid import UUID

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition, topic_id_from_text, topic_id_to_text
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchPartition, FetchRequest
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

TP = TopicPartition("t", 0)
STRANGE = topic_id_to_text(UUID(int=99))


@pytest.fixture
def cluster(topic) -> SimulatedCluster:
    return topic


def id_of(cluster, topic="t") -> str:
    data = cluster.zookeeper.data(TopicZNode.path(topic))
    return topic_id_to_text(TopicZNode.decode(topic, data).topic_id)


def request(*topics, wait_ms=0, **session):
    wanted = [FetchPartition(topic, 0, 0, 1 << 20) for topic in topics]
    return FetchRequest(wait_ms, 1, 1 << 20, wanted, **session)


def leader(cluster) -> int:
    return cluster.state(TP).leader


def fetched(cluster, message, *, version=17, broker=0):
    return cluster.answer(cluster.ask(broker or leader(cluster), FETCH, version, message))


def outcome(answer):
    return [(row.topic, ErrorCode.of(row.error_code).name) for row in answer.partitions]


def delete_and_create_again(cluster):
    assert cluster.answer(cluster.delete_topic("t")).responses[0].error_code == 0
    cluster.loop.run_until(lambda: cluster.zookeeper.data(TopicZNode.path("t")) is None)
    assert cluster.create_topic("t").error_code == 0
    assert cluster.produced_when_there(TP, b"other") == 0


@pytest.mark.parametrize("version", range(13, 18))
def test_a_topic_is_read_by_its_id(cluster, version):
    known = id_of(cluster)
    answer = fetched(cluster, request(STRANGE, known), version=version)
    assert outcome(answer) == [(STRANGE, "UNKNOWN_TOPIC_ID"), (known, "NONE")]
    assert b"first" in bytes(answer.partitions[1].records)


def test_a_topic_without_an_id_is_not_taken_for_another(cluster):
    nobody = topic_id_to_text(UUID(int=0))
    assert outcome(fetched(cluster, request(nobody))) == [(nobody, "UNKNOWN_TOPIC_ID")]


def test_the_id_of_a_topic_that_was_created_again_reads_nothing_of_the_new_one(cluster):
    old = id_of(cluster)
    delete_and_create_again(cluster)
    ((_, code),) = outcome(fetched(cluster, request(old)))
    assert code in ("UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID")
    assert b"other" in bytes(fetched(cluster, request(id_of(cluster))).partitions[0].records)


def test_a_replica_of_a_new_topic_answers_nothing_for_the_old_one_while_metadata_are_behind(
    cluster,
):
    """A broker hears what to lead before it hears of the topic."""
    old = id_of(cluster)
    delete_and_create_again(cluster)
    metadata = cluster[leader(cluster)].metadata
    metadata._known.names[topic_id_from_text(old)] = "t"
    assert outcome(fetched(cluster, request(old))) == [(old, "INCONSISTENT_TOPIC_ID")]


def test_a_waiting_fetch_of_a_topic_that_is_created_again_brings_nothing_of_the_new_one(cluster):
    old = id_of(cluster)
    wanted = [FetchPartition(old, 0, 1, 1 << 20)]
    answers = cluster.ask(leader(cluster), FETCH, 17, FetchRequest(30_000, 1, 1 << 20, wanted))
    cluster.loop.run_for(500)
    assert not answers
    delete_and_create_again(cluster)
    cluster.produced(TP, b"more")
    answer = cluster.answer(answers, limit_ms=60_000)
    ((topic, code),) = outcome(answer)
    assert topic == old and code != "NONE"
    assert not answer.partitions[0].records


def test_a_session_keeps_topics_by_their_ids(cluster):
    known = id_of(cluster)
    opened = fetched(cluster, request(known, session_epoch=0))
    assert opened.session_id
    again = request(session_id=opened.session_id, session_epoch=1)
    assert b"first" in bytes(fetched(cluster, again).partitions[0].records)
    delete_and_create_again(cluster)
    later = request(session_id=opened.session_id, session_epoch=2)
    row = fetched(cluster, later, broker=0)
    assert row.error_code or [code for _, code in outcome(row)] != ["NONE"]


def test_a_session_of_names_is_refused_to_a_request_by_ids(cluster):
    opened = fetched(cluster, request("t", session_epoch=0), version=12)
    mixed = request(session_id=opened.session_id, session_epoch=1)
    answer = fetched(cluster, mixed)
    assert ErrorCode.of(answer.error_code) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_who_asks_a_follower_is_told_where_the_leader_listens(cluster):
    follower = next(id_ for id_ in (1, 2, 3) if id_ != leader(cluster))
    answer = fetched(cluster, request(id_of(cluster)), broker=follower)
    assert outcome(answer)[0][1] == "NOT_LEADER_OR_FOLLOWER"
    told = cluster[follower].metadata.brokers[leader(cluster)]
    assert [(node.broker_id, node.host, node.port) for node in answer.nodes] == [
        (leader(cluster), told.host, told.port)
    ]
    assert not fetched(cluster, request(id_of(cluster)), broker=follower, version=15).nodes
