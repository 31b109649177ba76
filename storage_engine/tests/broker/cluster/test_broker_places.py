"""Where brokers are, as their registrations say it to the others. Source: R-REP13."""

import json

import pytest

from simulation.world.clock import ProcessLoop
from storage_engine.broker.cluster import broker_places
from storage_engine.broker.cluster.broker_places import BrokerPlaces, warn_of_shared_machines
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.placement import BrokerPlace
from storage_engine.tests.zookeeper.lossy_session import LossySession, new_server, pause
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode


class Seen:
    """The places that one broker sees, and the registrations that it looks at."""

    def __init__(self) -> None:
        self.server = new_server()
        process = ProcessLoop(self.server.loop)
        self.store = LossySession(self.server, process)
        self.others = LossySession(self.server, process)
        self.places = BrokerPlaces(self.store, process)

    def register(self, broker: int, **fields) -> None:
        node = BrokerIdZNode(broker_id=BrokerId(broker), host="h", port=1, **fields)
        path = BrokerIdZNode.path(broker)
        if path in self.server.nodes:
            self.others.set(path, node.encode(), -1, lambda _reply: None)
        else:
            self.others.create(path, node.encode(), lambda _reply: None, make_parents=True)
        pause(self.server)

    def leave(self, broker: int) -> None:
        self.others.delete(BrokerIdZNode.path(broker), -1, lambda _reply: None)
        pause(self.server)


@pytest.fixture
def seen() -> Seen:
    seen = Seen()
    seen.places.start()
    seen.register(1, machine="a", rack="east")
    seen.register(2, machine="a")
    return seen


def test_places_are_known_from_registrations(seen):
    assert seen.places.of([BrokerId(1), BrokerId(2)]) == {
        1: BrokerPlace("east", "a"),
        2: BrokerPlace(None, "a"),
    }


def test_an_unknown_broker_is_asked_for_again(seen):
    with pytest.raises(KafkaError, match="the machine of broker 3 is not known yet") as refusal:
        seen.places.of([BrokerId(3)])
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER
    seen.register(3, machine="c")
    assert seen.places.of([BrokerId(3)])[BrokerId(3)].machine == "c"


def test_a_cordon_is_seen_at_once_and_its_end_too(seen):
    for is_cordoned in (True, False):
        seen.register(2, machine="a", is_cordoned=is_cordoned)
        assert seen.places.known()[BrokerId(2)] == BrokerPlace(None, "a", is_cordoned)


def test_a_broker_that_comes_back_on_another_machine_is_there(seen):
    seen.leave(2)
    assert seen.places.known()[BrokerId(2)].machine == "a", "its replicas may still be placed"
    seen.register(2, machine="b")
    assert seen.places.known()[BrokerId(2)].machine == "b"


@pytest.mark.parametrize("what", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("nth", range(3))
def test_a_lost_answer_only_delays_it(what, nth):
    seen = Seen()
    for broker in (1, 2):
        seen.register(broker, machine="a")
    seen.places.start()
    seen.server.loop.run_for(nth)
    setattr(seen.store, what, True)
    seen.register(3, machine="c")
    seen.server.loop.run_for(60_000)
    assert {broker: place.machine for broker, place in seen.places.known().items()} == {
        1: "a",
        2: "a",
        3: "c",
    }


def test_brokers_that_have_gone_are_forgotten_one_day(seen, monkeypatch):
    monkeypatch.setattr(broker_places, "KEPT_MAX", 1)
    for broker in (1, 2):
        seen.leave(broker)
    seen.register(3)
    assert sorted(seen.places.known()) == [2, 3]


def test_a_broker_of_an_early_release_has_no_machine(seen):
    node = {"jmx_port": -1, "host": "h", "version": 1, "port": 1}
    path = BrokerIdZNode.path(4)
    seen.others.create(path, json.dumps(node).encode(), lambda _reply: None)
    pause(seen.server)
    assert seen.places.known()[BrokerId(4)] == BrokerPlace()


def test_replicas_that_were_placed_on_one_machine_by_hand_are_told(seen, caplog):
    seen.register(3, machine="c")
    good = {TopicPartition("t", 0): (BrokerId(1), BrokerId(3))}
    warn_of_shared_machines(good, seen.places.known())
    assert not caplog.records
    bad = {TopicPartition("t", n): (BrokerId(1), BrokerId(3), BrokerId(2)) for n in (1, 2)}
    warn_of_shared_machines(good | bad, seen.places.known())
    assert caplog.messages == [
        "replicas of 2 partitions share a machine, and are lost together, such as partition=t-1 "
        "brokers=[1, 2]"
    ]
