"""The controller's election: R-CTL1, R-CTL5."""

from collections.abc import Callable

import pytest

from simulation.world.clock import EPOCH_MS, ProcessLoop, SimulatedLoop
from simulation.world.zookeeper import SimulatedZooKeeper
from storage_engine.core.ids import BrokerId, ControllerEpoch
from storage_engine.tests.zookeeper.loop import HandLoop, RealClock
from storage_engine.tests.zookeeper.lossy_session import (
    ROUND_TRIP_MS,
    TIMEOUT_MS,
    LossySession,
    new_server,
    pause,
    settle,
)
from storage_engine.zookeeper.controller_election import ControllerElection
from storage_engine.zookeeper.session import ZooKeeperSession
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerEpochZNode, ControllerZNode


class Broker:
    def __init__(self, server: SimulatedZooKeeper, broker_id: int) -> None:
        process = ProcessLoop(server.loop)
        self.session = LossySession(server, process)
        self.events: list[object] = []
        self.known_epoch = ControllerEpoch(-1)
        self.election = ControllerElection(
            self.session,
            BrokerId(broker_id),
            process,
            process,
            on_elected=lambda epoch, version: self.events.append((epoch, version)),
            on_resigned=lambda: self.events.append("resigned"),
            known_epoch=lambda: self.known_epoch,
        )


@pytest.fixture
def server() -> SimulatedZooKeeper:
    return new_server()


def test_the_first_controller_has_epoch_one_as_a_bare_integer(server: SimulatedZooKeeper) -> None:
    broker = Broker(server, 8)
    broker.election.start()
    settle(server)
    assert broker.events == [(1, 1)]
    assert server.nodes[ControllerEpochZNode.PATH].data == b"1"
    assert server.nodes[ControllerZNode.PATH].owner == broker.session.session_id
    node = ControllerZNode.decode(server.nodes[ControllerZNode.PATH].data)
    assert node.broker_id == 8
    assert node.timestamp_ms is not None
    assert EPOCH_MS < node.timestamp_ms < server.loop.wall_ms()


def test_one_of_many_wins_and_the_others_know_who(server: SimulatedZooKeeper) -> None:
    brokers = [Broker(server, i) for i in range(3)]
    for broker in brokers:
        broker.election.start()
    settle(server)
    assert sum(broker.election.is_controller for broker in brokers) == 1
    assert len({broker.election.controller_id for broker in brokers}) == 1
    assert server.nodes[ControllerEpochZNode.PATH].data == b"1"


def test_a_lost_session_resigns_and_another_broker_takes_over_with_a_higher_epoch(
    server: SimulatedZooKeeper,
) -> None:
    first, second = Broker(server, 1), Broker(server, 2)
    first.election.start()
    settle(server)
    second.election.start()
    settle(server)
    first.session.cut_off()
    server.loop.run_for(TIMEOUT_MS)
    settle(server)
    assert second.events == [(2, 2)]
    first.session.reconnect()
    settle(server)
    assert first.events == [(1, 1), "resigned"]
    assert first.election.controller_id == 2


@pytest.mark.parametrize("lost", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("nth", range(6))
def test_one_lost_message_anywhere_delays_the_election_only(
    server: SimulatedZooKeeper, nth: int, lost: str
) -> None:
    broker = Broker(server, 1)
    broker.election.start()
    server.loop.run_for(nth * ROUND_TRIP_MS)
    setattr(broker.session, lost, True)
    settle(server)
    assert not getattr(broker.session, lost)
    pause(server)
    settle(server)
    assert len(broker.events) == 1
    node = server.nodes[ControllerEpochZNode.PATH]
    assert broker.events == [(ControllerEpochZNode.decode(node.data), node.version)]
    assert node.data == b"1"


@pytest.mark.parametrize("nth", range(14))
def test_a_session_lost_at_any_step_leaves_one_controller_that_is_the_node_s(
    server: SimulatedZooKeeper, nth: int
) -> None:
    broker = Broker(server, 1)
    broker.election.start()
    server.loop.run_for(nth)
    broker.session.expire_and_reconnect()
    pause(server)
    assert broker.election.is_controller
    assert server.nodes[ControllerZNode.PATH].owner == broker.session.session_id
    epoch = server.nodes[ControllerEpochZNode.PATH]
    # An election that the lost session won either began and ended, or never began.
    assert broker.events[-1] == (ControllerEpochZNode.decode(epoch.data), epoch.version)
    assert broker.events[:-1] in ([], [(1, 1), "resigned"])


def test_a_controller_whose_node_is_deleted_resigns_and_runs_again(
    server: SimulatedZooKeeper,
) -> None:
    broker = Broker(server, 1)
    broker.election.start()
    settle(server)
    server.drop(ControllerZNode.PATH)
    settle(server)
    assert broker.events == [(1, 1), "resigned", (2, 2)]


def test_a_controller_whose_node_became_anothers_resigns(server: SimulatedZooKeeper) -> None:
    first, second = Broker(server, 1), Broker(server, 2)
    first.election.start()
    settle(server)
    first.session.hear_delay_ms = lambda: 20  # the newcomer is faster than the watch
    server.drop(ControllerZNode.PATH)
    second.election.start()
    settle(server)
    settle(server)
    assert [first.election.is_controller, second.election.is_controller].count(True) == 1
    assert first.events[:2] == [(1, 1), "resigned"]


def test_stop_gives_the_node_up_for_another(server: SimulatedZooKeeper) -> None:
    first, second = Broker(server, 1), Broker(server, 2)
    first.election.start()
    settle(server)
    second.election.start()
    settle(server)
    first.election.stop()
    settle(server)
    assert first.events == [(1, 1), "resigned"]
    assert second.events == [(2, 2)]


def test_stop_leaves_a_node_that_is_already_anothers(server: SimulatedZooKeeper) -> None:
    first, second = Broker(server, 1), Broker(server, 2)
    first.election.start()
    settle(server)
    server.data_watches.clear()  # the first does not learn that its node is gone
    server.drop(ControllerZNode.PATH)
    second.election.start()
    settle(server)
    first.election.stop()
    settle(server)
    assert second.events == [(2, 2)]
    assert second.election.is_controller
    assert ControllerZNode.PATH in server.nodes


def test_a_controller_told_of_a_newer_epoch_resigns_and_follows_its_successor(
    server: SimulatedZooKeeper,
) -> None:
    first, second = Broker(server, 1), Broker(server, 2)
    first.election.start()
    settle(server)
    server.data_watches.clear()  # the first does not learn that its node is gone
    server.drop(ControllerZNode.PATH)
    second.election.start()
    settle(server)
    first.election.reconsider()
    settle(server)
    assert first.events == [(1, 1), "resigned"]
    assert first.election.controller_id == 2
    assert second.election.is_controller


def test_a_controller_that_gives_up_lets_others_come_first(server: SimulatedZooKeeper) -> None:
    first, second = Broker(server, 1), Broker(server, 2)
    first.election.start()
    settle(server)
    second.election.start()
    settle(server)
    first.election.give_up()
    settle(server)
    pause(server)
    settle(server)
    assert first.events == [(1, 1), "resigned"]
    assert second.events == [(2, 2)]
    assert first.election.controller_id == 2


def test_a_broker_never_acts_twice_under_one_epoch(server: SimulatedZooKeeper) -> None:
    """Its orders are numbered within the epoch: it would begin anew with numbers that are old."""
    broker = Broker(server, 1)
    broker.election.start()
    settle(server)
    for _ in range(3):
        broker.election.reconsider()
        settle(server)
        pause(server)
        settle(server)
    elected = [event for event in broker.events if event != "resigned"]
    assert elected == [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.parametrize("epoch", [b"1", b"0", b"7"])
def test_a_broker_that_resigned_for_an_epoch_others_wrote_gives_its_node_away(
    server: SimulatedZooKeeper, epoch: bytes
) -> None:
    """The same number, written again, has another version: it would act under it twice."""
    broker = Broker(server, 1)
    broker.election.start()
    settle(server)
    node = server.nodes[ControllerEpochZNode.PATH]
    node.data, node.version = epoch, node.version + 1
    broker.election.reconsider()
    settle(server)
    assert broker.events == [(1, 1), "resigned"]
    pause(server)
    settle(server)
    assert broker.events[2:] == [(max(1, int(epoch)) + 1, 3)]


def test_an_epoch_is_above_all_that_its_broker_has_taken_orders_of(
    server: SimulatedZooKeeper,
) -> None:
    broker = Broker(server, 1)
    broker.known_epoch = ControllerEpoch(50)
    broker.election.start()
    settle(server)
    assert broker.events == [(51, 1)]


def test_an_epoch_that_others_lowered_before_it_was_read_is_not_acted_under(
    server: SimulatedZooKeeper,
) -> None:
    broker = Broker(server, 1)
    broker.known_epoch = ControllerEpoch(50)
    broker.election.start()
    server.loop.run_until(lambda: ControllerZNode.PATH in server.nodes)
    server.nodes[ControllerEpochZNode.PATH].data = b"50"
    settle(server)
    assert broker.events == []
    pause(server)
    settle(server)
    assert [event[0] for event in broker.events] == [51]  # type: ignore[index]


def test_an_epoch_that_could_not_be_read_back_is_not_written(server: SimulatedZooKeeper) -> None:
    broker = Broker(server, 1)
    last = b"%d" % (2**31 - 2)
    broker.session.create(ControllerEpochZNode.PATH, last, lambda _: None)
    broker.election.start()
    settle(server)
    assert broker.events == []
    assert server.nodes[ControllerEpochZNode.PATH].data == last
    server.nodes[ControllerEpochZNode.PATH].data = b"41"
    pause(server)
    settle(server)
    assert broker.events == [(42, 1)]


def test_a_node_that_is_no_sessions_ends_no_elections(server: SimulatedZooKeeper) -> None:
    first, second = Broker(server, 1), Broker(server, 2)
    by_hand = ControllerZNode(broker_id=BrokerId(1)).encode()
    first.session.create(ControllerZNode.PATH, by_hand, lambda _: None)
    for broker in (first, second):
        broker.election.start()
    settle(server)
    assert [first.election.is_controller, second.election.is_controller].count(True) == 1
    assert server.nodes[ControllerZNode.PATH].owner != 0


def test_who_is_late_to_remove_a_node_that_is_no_sessions_removes_no_other(
    server: SimulatedZooKeeper,
) -> None:
    """The next controller's node has the same version."""
    first, second = Broker(server, 1), Broker(server, 2)
    first.session.create(ControllerEpochZNode.PATH, b"4", lambda _: None)
    first.session.create(ControllerZNode.PATH, b"{}", lambda _: None)
    settle(server)
    second.election.start()
    # It reads the node, the epoch, and the node again; what it sends then takes long.
    server.loop.run_for(3 * ROUND_TRIP_MS - 1)
    second.session.delay_ms = lambda: 300
    settle(server)
    server.data_watches.clear()  # it does not learn that the node is gone
    first.election.start()
    settle(server)
    assert first.election.is_controller
    pause(server)
    settle(server)
    assert first.events == [(5, 1)]
    assert second.election.controller_id == 1


def test_a_damaged_epoch_elects_nobody_until_it_is_repaired(server: SimulatedZooKeeper) -> None:
    broker = Broker(server, 1)
    broker.session.create(ControllerEpochZNode.PATH, b"{}", lambda _: None)
    broker.election.start()
    settle(server)
    assert broker.events == []
    server.nodes[ControllerEpochZNode.PATH].data = b"41"
    pause(server)
    settle(server)
    assert broker.events == [(ControllerEpoch(42), 1)]


def test_failover_between_two_real_sessions(
    open_session: Callable[..., ZooKeeperSession], loop: HandLoop
) -> None:
    events: list[tuple[int, object]] = []
    sessions = [open_session(), open_session()]
    elections = [
        ControllerElection(
            session,
            BrokerId(broker_id),
            RealClock(),
            ProcessLoop(SimulatedLoop()),
            on_elected=lambda epoch, _version, b=broker_id: events.append((b, epoch)),  # type: ignore[misc]
            on_resigned=lambda b=broker_id: events.append((b, "resigned")),  # type: ignore[misc]
        )
        for broker_id, session in enumerate(sessions)
    ]
    elections[0].start()
    loop.run_until(lambda: elections[0].is_controller)
    elections[1].start()
    loop.run_until(lambda: elections[1].controller_id == 0)
    sessions[0].close()
    loop.run_until(lambda: elections[1].is_controller)
    assert events == [(0, 1), (1, 2)]
