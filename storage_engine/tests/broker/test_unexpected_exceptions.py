"""An exception that nobody foresaw ends one thing: what it ended is done again or given away, the
rest is served, and nothing stays under way. Each is raised once, or for one of several things."""

from simulation.world.cluster import SimulatedCluster
from simulation.world.network import SimulatedTransport
from simulation.world.requests import create_topic_request
from simulation.world.zookeeper_session import SimulatedSession
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.controller import delivery_requests
from storage_engine.broker.controller.admin_requests import AdminRequests
from storage_engine.broker.controller.store import ControllerStore
from storage_engine.broker.replicas.leader_answers import LeaderAnswers
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.follower_sessions import FollowerSession
from storage_engine.broker.settings_applier import SettingsApplier
from storage_engine.core.control.controller import Controller
from storage_engine.core.control.controller_events import BrokersChanged, StatesWritten
from storage_engine.core.ids import TopicPartition
from storage_engine.core.replication.partition import LeaderPartition
from storage_engine.log.dirs.log_dirs import LogDirs
from storage_engine.protocol.messages import create_topics
from storage_engine.tests.broker.settings.settings_requests import SET, TOPIC, send_alter
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerEpochZNode

TP = TopicPartition("t", 0)
BAD = TopicPartition("bad", 0)


cluster = cluster_fixture(
    "t",
    has_record=True,
    min_insync_replicas="2",
    replica_lag_time_max_ms="2000",
    auto_leader_rebalance_enable="false",
)


def goes_on(cluster: SimulatedCluster, topic: str = "next") -> None:
    """Topics come, are led and told, and leaders are replaced."""
    cluster.loop.run_until(
        lambda: all(len(broker.metadata.brokers) == 3 for broker in cluster.brokers)
    )
    cluster.create_topic(topic)
    assert cluster.produced_when_there(TopicPartition(topic, 0), b"x") == 0
    leader = cluster.state(TP).leader
    cluster[leader].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: cluster.state(TP).leader not in (-1, leader))
    cluster.produced(TP, b"x")
    cluster[leader].start()
    cluster.wait_in_sync(TP, 1, 2, 3)
    for broker in cluster.brokers:
        cluster.loop.run_until(lambda b=broker: topic in b.metadata)  # type: ignore[misc]


# --- the controller ---


def test_a_delivery_that_can_not_be_sent_is_sent_without_what_is_wrong_in_it(
    cluster, raised, break_it
):
    break_it(delivery_requests, "_leadership", most=10**6, when=lambda item: item.partition == BAD)
    cluster.create_topic("bad", partitions=1)
    goes_on(cluster)
    assert raised.told


def test_a_request_that_can_not_be_sent_is_a_failed_delivery(cluster, raised, break_it):
    def to_a_broker(_self, _endpoint, channel, spec, *_rest, **_options) -> bool:
        return channel == "controller" and spec.name == "LeaderAndIsr"

    break_it(SimulatedTransport, "request", most=3, when=to_a_broker)
    goes_on(cluster)
    assert raised.told
    assert raised.count == 3


def test_an_event_that_can_not_be_applied_makes_room_for_another_controller(
    cluster, raised, break_it
):
    epoch = int(cluster.zookeeper.data(ControllerEpochZNode.PATH))
    break_it(Controller, "step", when=lambda _self, event: isinstance(event, StatesWritten))
    goes_on(cluster)
    assert raised.told
    assert int(cluster.zookeeper.data(ControllerEpochZNode.PATH)) == epoch + 1


def test_a_controller_that_always_fails_at_one_event_makes_room_for_one_that_does_not(
    cluster, raised, break_it
):
    failing = cluster.controller.parts.cluster.controller
    acting = failing.acting

    def is_of_it(core, event) -> bool:
        ours = failing.acting is not None and failing.acting.core is core
        return ours and isinstance(event, BrokersChanged)

    assert acting is not None
    break_it(Controller, "step", most=10**6, when=is_of_it)
    other = next(broker for broker in cluster.brokers if broker is not cluster.controller)
    other.kill(session_ends_at_once=True)
    cluster.loop.run_for(5000)
    other.start()
    assert failing.acting is None
    goes_on(cluster)
    assert raised.told


def test_a_state_that_can_not_be_written_keeps_no_other_from_being_written(
    cluster, raised, break_it
):
    break_it(ControllerStore, "_operations", most=10**6, when=lambda _self, w: w.partition == BAD)
    request = create_topic_request("bad", 1, {})
    assert isinstance(request.topics, list)
    request.topics.extend(create_topic_request("good", 1, {}).topics)
    cluster.ask_controller(create_topics.API, 5, request)
    assert cluster.produced_when_there(TopicPartition("good", 0), b"x") == 0
    goes_on(cluster)
    assert raised.told


def test_a_request_in_zookeeper_that_can_not_be_taken_is_taken_later(cluster, raised, break_it):
    break_it(AdminRequests, "_readable_targets", when=lambda _self, content: content.data)
    cluster.reassign(TP, (1, 2))
    cluster.loop.run_until(lambda: set(cluster.state(TP).isr) == {1, 2})
    assert raised.told


# --- the brokers that it tells ---


def test_a_partition_that_can_not_be_led_keeps_no_other_from_being_led(cluster, raised, break_it):
    break_it(
        ReplicaManager,
        "apply_leadership",
        most=10**6,
        when=lambda _self, item, _endpoints: item.topic == "bad",
    )
    cluster.create_topic("bad")
    goes_on(cluster)
    assert raised.told


def test_metadata_that_can_not_be_taken_is_told_again(cluster, raised, break_it):
    break_it(MetadataCache, "update", most=4)
    cluster.create_topic("soon")
    # Not only when the controller has given up to wait for the answer.
    for broker in cluster.brokers:
        cluster.loop.run_until(
            lambda b=broker: "soon" in b.metadata,  # type: ignore[misc]
            limit_ms=10_000,
        )
    goes_on(cluster)
    assert raised.told
    assert raised.count == 4


def test_a_partition_that_can_not_be_replicated_keeps_no_other_from_it(cluster, raised, break_it):
    cluster.create_topic("bad")
    cluster.produced_when_there(BAD, b"x")
    leader = cluster.state(BAD).leader
    break_it(
        LeaderAnswers,
        "take",
        most=10**6,
        when=lambda _self, followed, _each: followed.topic_partition == BAD,
    )
    cluster.produce(leader, BAD, b"y")
    cluster.loop.run_for(500)
    for _ in range(3):
        cluster.produced(TP, b"z")
    goes_on(cluster)
    assert raised.told


def test_a_fetch_that_can_not_be_sent_is_sent_later(cluster, raised, break_it):
    def is_fetch(_self, _endpoint, _channel, spec, *_rest, **_options) -> bool:
        return spec.name == "Fetch"

    break_it(SimulatedTransport, "request", most=10, when=is_fetch)
    cluster.produced(TP, b"x")
    goes_on(cluster)
    assert raised.told
    assert raised.count == 10


# --- ZooKeeper as brokers use it ---


def test_an_isr_that_can_not_be_written_is_written_later(cluster, raised, break_it):
    break_it(SimulatedSession, "set", when=lambda _self, path, *_rest: path.endswith("/state"))
    leader = cluster.state(TP).leader
    other = next(b for b in cluster.brokers if b.id != leader and b is not cluster.controller)
    cluster.network.isolate(other.id)
    cluster.produce(leader, TP, b"what it has not", acks=1)
    cluster.loop.run_until(lambda: other.id not in cluster.state(TP).isr)
    cluster.produced(TP, b"x")
    cluster.network.heal()
    goes_on(cluster)
    assert raised.told


def test_an_isr_whose_acceptance_can_not_be_applied_is_read_again(cluster, raised, break_it):
    break_it(
        LeaderPartition, "step", when=lambda _self, event: type(event).__name__ == "IsrAccepted"
    )
    leader = cluster.state(TP).leader
    other = next(b for b in cluster.brokers if b.id != leader and b is not cluster.controller)
    cluster.network.isolate(other.id)
    cluster.produce(leader, TP, b"what it has not", acks=1)
    cluster.loop.run_until(lambda: raised.count == 1)
    cluster.produced(TP, b"x")
    cluster.network.heal()
    goes_on(cluster)
    assert raised.told


def test_a_look_at_one_partition_that_fails_keeps_no_other_from_being_looked_at(
    cluster, raised, break_it
):
    cluster.create_topic("bad")
    cluster.produced_when_there(BAD, b"x")
    leader = cluster[cluster.state(BAD).leader]
    bad = leader.replicas.get(BAD).leader
    break_it(
        LeaderPartition,
        "holds_all_everywhere",
        most=10**6,
        when=lambda self, _log_end_offset: self is bad,
    )
    cluster.loop.run_for(3000)
    goes_on(cluster)
    assert raised.told


def test_a_registration_whose_consequences_fail_has_them_later(cluster, raised, break_it):
    break_it(LogDirs, "keep_registration", most=2)
    for broker in cluster.brokers:
        broker.kill(session_ends_at_once=True)
    for broker in cluster.brokers:
        broker.start()
    cluster.produced(TP, b"x")
    goes_on(cluster)
    assert raised.told
    assert raised.count == 2


def test_settings_that_can_not_be_applied_keep_no_broker_from_starting(cluster, raised, break_it):
    break_it(SettingsApplier, "take", most=3)
    leader = cluster.state(TP).leader
    cluster[leader].kill(session_ends_at_once=True)
    cluster[leader].start()
    goes_on(cluster)
    assert raised.told
    cluster.answer(send_alter(cluster, 1, TOPIC, "t", ("retention.ms", SET, "1234")))
    cluster.loop.run_for(1000)
    for broker in cluster.brokers:
        assert broker.parts.settings.topics.of("t").log.retention_ms == 1234


def test_a_follower_that_can_not_be_told_of_an_append_keeps_no_other_waiting(
    cluster, monkeypatch, raised
):
    told: list[int] = []
    tell = FollowerSession.tell_news

    def noted(session: FollowerSession) -> None:
        told.append(session.replica)
        tell(session)

    monkeypatch.setattr(FollowerSession, "tell_news", raised.times(noted, 1))
    cluster.loop.run_for(1000)
    del told[:]
    assert cluster.produced(TP, b"second") == 1
    assert raised.count == 1
    assert raised.told
    assert len(told) == 1, "the other follower, at once"
