"""Other programs write anything under all documented paths of ZooKeeper: what is sound is served,
by every controller. Source: R-CTL10."""

import json

import pytest

from simulation.world.zookeeper_session import SimulatedSession
from storage_engine.broker.controller.watches import RETRY_MS
from storage_engine.client.zookeeper_consumer.assignment import StreamCounts, TopicFilter
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import ZkReply, ZkStatus
from storage_engine.protocol.messages import create_partitions
from storage_engine.protocol.messages.create_partitions import CreatePartitionsRequest
from storage_engine.tests.broker.controller.foreign_znodes import (
    TP,
    ForeignZNodes,
    Reader,
    all_are_known,
    cluster,
    next_controller,
    serves_what_is_sound,
)
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.zookeeper.admin_znodes import LogDirEventZNode
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

__all__ = ["cluster"]

SEEDS = range(1000) if ALL_FAULTS else range(4)
ROUNDS = 8
WRITES = 12


@pytest.mark.parametrize("name", ["\u00a0x", "a b", "\ud800"])
def test_a_name_that_no_topic_can_have_stops_nobody(cluster, name):
    """`\ud800` stands for what the session does not even ask for."""
    for path in (f"{TopicZNode.PARENT}/{name}", f"/consumers/g/ids/{name}"):
        cluster.zookeeper.make_parents(path)
        cluster.zookeeper.put(path, b'{"version":1,"partitions":{"0":[1]}}')
    cluster.loop.run_for(1000)
    serves_what_is_sound(cluster, "one")
    next_controller(cluster)
    serves_what_is_sound(cluster, "two")
    named = Reader(cluster, "g")
    all_but_none = TopicFilter.black_list("nothing")
    filtering = Reader(cluster, "g2", StreamCounts({}, filter=all_but_none, filtered=1))
    cluster.loop.run_until(lambda: TP in named.held and TP in filtering.held)
    assert named.failures == filtering.failures == []


def test_a_topic_with_an_illegal_name_is_not_read_with_every_listing(cluster, caplog):
    cluster.zookeeper.put(f"{TopicZNode.PARENT}/a b", b"{}")
    cluster.loop.run_for(1000)
    caplog.clear()
    assert cluster.create_topic("next").error_code == 0
    cluster.loop.run_for(1000)
    assert [record for record in caplog.records if "a b" in record.getMessage()] == []


def test_notices_that_can_not_be_read_are_listed_again_once_each_time(cluster, monkeypatch):
    """Each of two would have both listed again, twice as many after each pause."""
    get, asked = SimulatedSession.get, []

    def deaf(self, path, on_reply, watch=None):
        if path.startswith(LogDirEventZNode.PARENT):
            asked.append(path)
            on_reply(ZkReply(status=ZkStatus.UNKNOWN))
        else:
            get(self, path, on_reply, watch)

    monkeypatch.setattr(SimulatedSession, "get", deaf)
    for number in range(2):
        cluster.zookeeper.put(f"{LogDirEventZNode.PREFIX}{number:010d}", b"{}")
    cluster.loop.run_for(4_000)
    assert len(asked) <= 2 * 2 * (4_000 // RETRY_MS)
    monkeypatch.undo()
    cluster.loop.run_until(lambda: not cluster.zookeeper.children(LogDirEventZNode.PARENT))


@pytest.mark.parametrize("partitions", [{"1": [1, 2, 3]}, {}, {"0": [1, 2, 3], "2": [1, 2, 3]}])
def test_a_topic_with_gaps_can_not_grow_and_keeps_no_other_from_it(cluster, partitions):
    data = json.dumps({"version": 1, "partitions": partitions}).encode()
    cluster.zookeeper.put(TopicZNode.path("gap"), data)
    cluster.loop.run_for(3000)
    topics = [
        CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=4, assignments=None)
        for name in ("gap", "sound")
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=10_000, validate_only=False)
    asked = cluster.ask_controller(create_partitions.API, 3, request)
    codes = {each.name: each.error_code for each in cluster.answer(asked).results}
    assert codes == {"gap": ErrorCode.INVALID_PARTITIONS, "sound": ErrorCode.NONE}
    assert cluster.produced_when_there(TopicPartition("sound", 3), b"new") == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_others_write_the_sound_is_served_over_failovers(cluster, seed):
    reader = Reader(cluster, "sound-group")
    foreign = ForeignZNodes(seed)
    for number in range(ROUNDS):
        for _ in range(WRITES):
            foreign.write(cluster.zookeeper)
            cluster.loop.run_for(foreign.random.choice((0, 1, 20, 500)))
        cluster.produced(TP, b"%d" % number)
        if number % 2:
            next_controller(cluster)
    cluster.loop.run_for(5000)
    serves_what_is_sound(cluster, "after")
    cluster.loop.run_until(lambda: TP in reader.held)
    assert reader.failures == []


@pytest.mark.parametrize("replicas", [{"3000000000": [1, 2, 3]}, {"0": [1, 2, 3_000_000_000]}])
def test_a_topic_with_a_number_out_of_range_stops_no_controller(cluster, replicas):
    data = json.dumps({"version": 1, "partitions": replicas}).encode()
    cluster.zookeeper.put(TopicZNode.path("foreign"), data)
    cluster.loop.run_for(3000)
    serves_what_is_sound(cluster, "one")
    next_controller(cluster)
    serves_what_is_sound(cluster, "two")
    sound = json.dumps({"version": 1, "partitions": {"0": [1, 2, 3]}}).encode()
    cluster.zookeeper.put(TopicZNode.path("foreign"), sound)
    assert cluster.produced_when_there(TopicPartition("foreign", 0), b"mended") == 0


def test_a_state_that_can_not_be_read_is_taken_when_it_is_mended(cluster):
    path = PartitionStateZNode.path("sound", 0)
    good = cluster.zookeeper.data(path)
    cluster.zookeeper.put(path, b'{"leader":3000000000}')
    next_controller(cluster)
    all_are_known(cluster)
    assert cluster.create_topic("other").error_code == 0
    cluster.zookeeper.put(path, good)
    cluster.loop.run_for(10_000)
    serves_what_is_sound(cluster, "after")
