"""Other programs write anything under all documented paths of ZooKeeper: what is sound is served,
by every controller. Source: R-CTL10."""

import json

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.zookeeper_session import SimulatedSession
from storage_engine.broker.controller.admin_requests import CONFLICT_PAUSE_MS
from storage_engine.broker.controller.watches import RETRY_MS
from storage_engine.client.zookeeper_consumer.assignment import StreamCounts, TopicFilter
from storage_engine.client.zookeeper_consumer.member import ZooKeeperGroupMember
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import ZkReply, ZkStatus
from storage_engine.protocol.messages import create_partitions
from storage_engine.protocol.messages.create_partitions import CreatePartitionsRequest
from storage_engine.tests.broker.controller.foreign_znodes import ForeignZNodes
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.zookeeper.admin_znodes import (
    LogDirEventZNode,
    PreferredReplicaElectionZNode,
    ReassignPartitionsZNode,
)
from storage_engine.zookeeper.znodes.cluster_znodes import (
    BrokerIdZNode,
    ConfigZNode,
    ControllerEpochZNode,
    ControllerZNode,
)
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

SEEDS = range(1000) if ALL_FAULTS else range(4)
ROUNDS = 8
WRITES = 12
TP = TopicPartition("sound", 0)
SOUND = StreamCounts({"sound": 1})


cluster = cluster_fixture(
    "sound",
    has_record=True,
    simulated_disk=True,
    min_insync_replicas="2",
    replica_lag_time_max_ms="2000",
)


def next_controller(cluster: SimulatedCluster) -> int:
    """The present one is killed, and started again."""
    cluster.loop.run_until(lambda: cluster.controller is not None)
    assert cluster.controller is not None
    old = cluster.controller
    old.kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: cluster.controller not in (None, old))
    old.start()
    return old.id


def all_are_known(cluster: SimulatedCluster) -> None:
    cluster.loop.run_until(
        lambda: all(
            broker.serving and {1, 2, 3} <= broker.metadata.brokers.keys()
            for broker in cluster.brokers
        )
    )


def serves_what_is_sound(cluster: SimulatedCluster, topic: str) -> None:
    all_are_known(cluster)
    created = ErrorCode.of(cluster.create_topic(topic).error_code)
    # Of a controller that has just found out that it is none any more.
    assert created in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
    assert cluster.produced_when_there(TopicPartition(topic, 0), b"new") == 0
    before = cluster.produced(TP, b"again")
    cluster[cluster.state(TP).leader].kill(session_ends_at_once=True)
    assert cluster.produced(TP, b"under the next leader") > before
    for broker in cluster.brokers:
        if not broker.up:
            broker.start()
    cluster.wait_in_sync(TP, 1, 2, 3)
    all_are_known(cluster)
    for broker in cluster.brokers:
        cluster.loop.run_until(lambda b=broker: topic in b.metadata)  # type: ignore[misc]


class Reader:
    """What a consumer that meets others in ZooKeeper is given."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        group: str,
        streams: StreamCounts = SOUND,
    ) -> None:
        self.held: set[TopicPartition] = set()
        self.failures: list[Exception] = []
        self.addresses = ""
        process = cluster[1].network.loop
        self.member = ZooKeeperGroupMember(
            SimulatedSession(cluster.zookeeper, process, timeout_ms=6000),
            process,
            self,
            group=group,
            consumer="m",
            streams=streams,
        )
        self.member.start()

    def set_brokers(self, addresses: str) -> None:
        self.addresses = addresses

    def take(self, taken) -> None:
        self.held.update(each.tp for each in taken)

    def release(self, partitions) -> dict[TopicPartition, int]:
        self.held.difference_update(partitions)
        return {}

    def lose(self, partitions) -> None:
        self.held.difference_update(partitions)

    def fail(self, error: Exception) -> None:
        self.failures.append(error)


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


@pytest.mark.parametrize(
    "path",
    [
        "/brokers/topics/gone/x",
        "/brokers/topics/gone/partitions/7",
        "/brokers/topics/gone/partitions/0/x/y",
        "/brokers/topics/gone/partitions/0/state/x",
        "/config/topics/gone/x",
        "/admin/delete_topics/gone/x",
    ],
)
def test_what_others_made_below_a_topics_nodes_goes_with_the_topic(cluster, path):
    assert cluster.create_topic("gone").error_code == 0
    cluster.zookeeper.make_parents(path)
    cluster.zookeeper.put(path, b"")
    deleted = cluster.answer(cluster.delete_topic("gone")).responses
    # Its request may have been carried out before anybody asked for it.
    assert deleted[0].error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    left = [each for each in cluster.zookeeper.nodes if "/gone" in each]
    assert left == []
    assert cluster.create_topic("gone").error_code == 0
    serves_what_is_sound(cluster, "after")


def test_settings_that_a_topic_left_with_nodes_below_them_keep_nobody_from_its_name(cluster):
    path = "/config/topics/fresh/x"
    cluster.zookeeper.make_parents(path)
    cluster.zookeeper.put(path, b"")
    cluster.zookeeper.put("/config/topics/fresh", b'{"version":1,"config":{"retention.ms":"1"}}')
    assert cluster.create_topic("fresh").error_code == 0
    settings = ConfigZNode.decode("", cluster.zookeeper.data("/config/topics/fresh"))
    assert settings.config == {}


def test_a_request_to_delete_no_topic_waits_for_none(cluster):
    """A topic of that name that is made later is not deleted, by the next controller either."""
    path = "/admin/delete_topics/later/x"
    cluster.zookeeper.make_parents(path)
    cluster.zookeeper.put(path, b"")
    cluster.loop.run_until(lambda: "/admin/delete_topics/later" not in cluster.zookeeper.nodes)
    assert cluster.create_topic("later").error_code == 0
    next_controller(cluster)
    serves_what_is_sound(cluster, "after")
    assert TopicZNode.path("later") in cluster.zookeeper.nodes


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


def test_a_broker_whose_registration_others_change_or_remove_registers_again(cluster):
    path = BrokerIdZNode.path(2)
    good = cluster.zookeeper.data(path)
    first = cluster[2].broker_epoch
    cluster.zookeeper.put(path, b"garbage")
    cluster.loop.run_until(lambda: cluster.zookeeper.data(path) == good)
    assert cluster[2].broker_epoch == first
    cluster.zookeeper.drop(path)
    cluster.loop.run_until(lambda: cluster[2].broker_epoch > first)
    serves_what_is_sound(cluster, "after")


@pytest.mark.parametrize("node", [PreferredReplicaElectionZNode, ReassignPartitionsZNode])
def test_a_request_with_nodes_below_it_is_carried_out_and_removed(cluster, monkeypatch, node):
    """ZooKeeper removes nothing that has children: its controller tried as fast as it could."""
    submit, operations = SimulatedSession._submit, []

    def counting(self, *args, **options):
        operations.append(args)
        submit(self, *args, **options)

    monkeypatch.setattr(SimulatedSession, "_submit", counting)
    request = {"topic": "sound", "partition": 0, "replicas": [1, 2, 3]}
    cluster.zookeeper.put(node.PATH, b"{}")
    cluster.zookeeper.put(f"{node.PATH}/x", b"")
    cluster.zookeeper.put(f"{node.PATH}/x/y", b"")
    cluster.zookeeper.put(node.PATH, json.dumps({"version": 1, "partitions": [request]}).encode())
    cluster.loop.run_until(lambda: node.PATH not in cluster.zookeeper.nodes, limit_ms=5_000)
    assert len(operations) < 100


def test_a_request_that_others_make_nodes_below_all_the_time_costs_little(cluster, monkeypatch):
    path = PreferredReplicaElectionZNode.PATH
    delete, deletions = SimulatedSession.delete, []

    def refused(self, at, version, on_reply):
        if at == path:
            deletions.append(at)
            cluster.zookeeper.put(f"{path}/x{len(deletions)}", b"")
        delete(self, at, version, on_reply)

    monkeypatch.setattr(SimulatedSession, "delete", refused)
    cluster.zookeeper.put(path, b'{"version":1,"partitions":[{"topic":"sound","partition":0}]}')
    cluster.loop.run_for(5_000)
    assert 2 < len(deletions) <= 5_000 // CONFLICT_PAUSE_MS
    monkeypatch.undo()
    cluster.loop.run_until(lambda: path not in cluster.zookeeper.nodes, limit_ms=5_000)


@pytest.mark.parametrize("below", ["", "/x"])
def test_a_registration_that_is_no_sessions_is_no_broker_and_keeps_none_out(cluster, caplog, below):
    ghost = {"version": 1, "host": "nowhere", "port": 9092, "jmx_port": -1}
    for broker in (0, 2):
        if broker:
            cluster[broker].kill(session_ends_at_once=True)
        path = f"{BrokerIdZNode.path(broker)}{below}"
        cluster.zookeeper.make_parents(path)
        cluster.zookeeper.put(path, b"")
        cluster.zookeeper.put(BrokerIdZNode.path(broker), json.dumps(ghost).encode())
    cluster.loop.run_for(3000)
    assert 0 not in cluster[1].metadata.brokers
    told = [record for record in caplog.records if "/brokers/ids/0 is no" in record.getMessage()]
    assert len(told) == 1
    cluster[2].start()
    assert 0 not in cluster[1].metadata.brokers
    serves_what_is_sound(cluster, "after")
    state = cluster.state(TopicPartition("after", 0))
    assert 0 not in state.isr
    group = Reader(cluster, "g")
    cluster.loop.run_until(lambda: TP in group.held)
    assert "nowhere" not in group.addresses


def test_a_broker_is_not_given_up_for_what_others_wrote_into_its_registration(cluster, monkeypatch):
    """Its controller reads it at a moment when it can't be made out."""
    controller = cluster.controller
    other = next(broker for broker in cluster.brokers if broker is not controller)
    path = BrokerIdZNode.path(other.id)
    good = cluster.zookeeper.data(path)
    other.pause()
    cluster.zookeeper.put(path, b"garbage")
    cluster.zookeeper.put(f"{BrokerIdZNode.PARENT}/77", b"garbage")
    cluster.loop.run_for(500)
    assert other.id in controller.parts.cluster.controller.acting.core.brokers
    other.resume()
    cluster.loop.run_until(lambda: cluster.zookeeper.data(path) == good)
    serves_what_is_sound(cluster, "after")


def test_a_controller_whose_node_others_change_sets_it_right(cluster):
    cluster.zookeeper.put(ControllerZNode.PATH, b"garbage")
    cluster.loop.run_for(100)
    data = cluster.zookeeper.data(ControllerZNode.PATH)
    assert ControllerZNode.decode(data).broker_id == cluster.controller.id
    # One that starts now asks ZooKeeper who the controller is.
    follower = next(broker for broker in cluster.brokers if broker is not cluster.controller)
    follower.kill(session_ends_at_once=True)
    follower.start()
    serves_what_is_sound(cluster, "after")


@pytest.mark.parametrize("below", ["", "/x", "/x/y"])
def test_a_controllers_node_that_is_no_sessions_ends_no_elections(cluster, below):
    old = cluster.controller
    old.kill(session_ends_at_once=True)
    path = f"{ControllerZNode.PATH}{below}"
    cluster.zookeeper.make_parents(path)
    cluster.zookeeper.put(path, b"garbage")
    cluster.loop.run_until(lambda: cluster.controller not in (None, old), limit_ms=10_000)
    old.start()
    serves_what_is_sound(cluster, "after")


@pytest.mark.parametrize("epoch", [b"", b"3000000000", b"9" * 5000, b"one"])
def test_an_epoch_that_can_not_be_read_elects_nobody_and_stops_no_leader(cluster, epoch):
    cluster.zookeeper.put(ControllerEpochZNode.PATH, epoch)
    assert cluster.produced(TP, b"goes on") == 1
    cluster.loop.run_for(10_000)
    assert cluster.produced(TP, b"still") == 2
    cluster.zookeeper.put(ControllerEpochZNode.PATH, b"50")
    serves_what_is_sound(cluster, "after")


@pytest.mark.parametrize("epoch", [b"0", b"100", b"150", None])
def test_an_epoch_that_others_touched_is_passed_at_once(cluster, epoch):
    """Set to the number that it has, lowered by much, or removed: no broker refuses the orders of
    the next controller for longer than an election takes."""
    for number in range(10):
        assert cluster.create_topic(f"t{number}").error_code == 0
    cluster.zookeeper.put(ControllerEpochZNode.PATH, b"149")
    next_controller(cluster)
    all_are_known(cluster)
    if epoch is None:
        cluster.zookeeper.drop(ControllerEpochZNode.PATH)
    else:
        cluster.zookeeper.put(ControllerEpochZNode.PATH, epoch)
    cluster.loop.run_for(100)
    cluster.create_topic("next")
    cluster.loop.run_until(
        lambda: all("next" in broker.metadata for broker in cluster.brokers),
        limit_ms=10_000,
    )
    assert int(cluster.zookeeper.data(ControllerEpochZNode.PATH)) == 151
    serves_what_is_sound(cluster, "after")
