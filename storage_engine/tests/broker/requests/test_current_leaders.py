"""A refusal says who leads, and where that broker is (KIP-951)."""

from dataclasses import replace

import pytest

from simulation.world.requests import make_batch, produce_request
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerId, TopicPartition, topic_id_to_text
from storage_engine.protocol.apis.current_leaders import LeaderNode
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchPartition, FetchRequest
from storage_engine.protocol.apis.produce import API as PRODUCE

TP = TopicPartition("t", 0)
NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def node_of(cluster, broker):
    info = cluster[broker].metadata.brokers[BrokerId(broker)]
    return LeaderNode(broker, info.host, info.port, info.rack)


def produced(cluster, broker, *, version=12, tp=TP):
    request = produce_request(tp.topic, tp.partition, make_batch(payload=b"x"), acks=-1)
    return cluster.answer(cluster.ask(broker, PRODUCE, version, request))


def fetched(cluster, broker, *, version=12, epoch=-1, tp=TP):
    wanted = [FetchPartition(tp.topic, tp.partition, 0, 1 << 20, epoch)]
    request = FetchRequest(0, 1, 1 << 20, wanted)
    return cluster.answer(cluster.ask(broker, FETCH, version, request))


def move_leader(cluster):
    """Returns the old one and the new one."""
    old = cluster.state(TP).leader
    cluster.wait_in_sync(TP, 1, 2, 3)
    order = [broker for broker in (1, 2, 3) if broker != old]
    cluster.answer(cluster.reassign(TP, [*order, old]))
    cluster.loop.run_for(1000)
    cluster.answer(cluster.elect_preferred(TP))
    cluster.loop.run_until(lambda: cluster.state(TP).leader == order[0])
    cluster.loop.run_for(1000)
    return old, order[0]


@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_producer_is_told_the_new_leader_and_its_address(topic, version):
    old, new = move_leader(topic)
    answer = produced(topic, old, version=version)
    (row,) = answer.partitions
    assert row.error_code == NOT_LEADER
    assert row.current_leader == (new, topic.state(TP).leader_epoch)
    assert list(answer.nodes) == [node_of(topic, new)]


def test_a_producer_of_an_earlier_version_is_told_nothing_more_than_the_error(topic):
    old, _ = move_leader(topic)
    answer = produced(topic, old, version=9)
    assert answer.partitions[0].error_code == NOT_LEADER
    assert (answer.partitions[0].current_leader, list(answer.nodes)) == (None, [])


def test_a_reader_is_told_the_new_leader_from_version_12_and_its_address_from_16(topic):
    old, new = move_leader(topic)
    epoch = topic.state(TP).leader_epoch
    (row,) = fetched(topic, old).partitions
    assert (row.error_code, row.current_leader) == (NOT_LEADER, (new, epoch))
    by_id = TopicPartition(topic_id_to_text(topic.topic_id("t")), 0)
    answer = fetched(topic, old, version=16, tp=by_id)
    assert answer.partitions[0].current_leader == (new, epoch)
    assert list(answer.nodes) == [node_of(topic, new)]


def test_a_broker_without_a_replica_sends_clients_on_to_the_leader(topic):
    leader = topic.state(TP).leader
    other = next(broker for broker in (1, 2, 3) if broker != leader)
    topic.answer(topic.reassign(TP, [broker for broker in (1, 2, 3) if broker != other]))
    topic.loop.run_until(lambda: other not in topic.state(TP).isr)
    topic.loop.run_for(2000)
    leader = topic.state(TP).leader
    (row,) = produced(topic, other).partitions
    assert (row.error_code, row.current_leader[0]) == (NOT_LEADER, leader)
    (row,) = fetched(topic, other).partitions
    assert (row.error_code, row.current_leader[0]) == (NOT_LEADER, leader)


def test_an_unknown_topic_stays_unknown(topic):
    nobody = TopicPartition("nobody", 0)
    (row,) = produced(topic, 1, tp=nobody).partitions
    assert ErrorCode.of(row.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert row.current_leader is None


def test_a_leader_that_has_just_died_is_not_told(topic):
    leader = topic.state(TP).leader
    topic.network.isolate(leader)
    topic.loop.run_for(100)
    follower = next(broker for broker in (1, 2, 3) if broker != leader)
    (row,) = produced(topic, follower).partitions
    assert (row.error_code, row.current_leader) == (NOT_LEADER, None)


def test_what_the_controller_said_last_counts_though_the_replica_has_not_heard_of_it(topic):
    """UpdateMetadata comes before LeaderAndIsr."""
    leader = topic.state(TP).leader
    follower = next(broker for broker in (1, 2, 3) if broker != leader)
    third = next(broker for broker in (1, 2, 3) if broker not in (leader, follower))
    metadata = topic[follower].metadata
    known = metadata.partitions("t")[0]
    metadata.partitions("t")[0] = replace(
        known, leader=BrokerId(third), leader_epoch=known.leader_epoch + 1
    )
    (row,) = produced(topic, follower).partitions
    assert row.current_leader == (third, known.leader_epoch + 1)
