"""A simulated session: its operations, watches and ephemeral nodes when it is cut off."""

import pytest

from simulation.world.clock import ProcessLoop, SimulatedLoop
from simulation.world.zookeeper import SimulatedZooKeeper
from simulation.world.zookeeper_session import SimulatedSession
from storage_engine.core.ports import SessionState, ZkStatus

TIMEOUT_MS = 1_000
CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST


class Ensemble:
    """An ensemble with one session, and what it has heard."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.server = SimulatedZooKeeper(self.loop)
        self.session = SimulatedSession(self.server, ProcessLoop(self.loop), timeout_ms=TIMEOUT_MS)
        self.states: list[SessionState] = []
        self.session.add_state_listener(self.states.append)
        self.told: list[ZkStatus] = []

    def create(self, path: str, *, ephemeral: bool = False) -> None:
        def told(reply) -> None:
            self.told.append(reply.status)

        self.session.create(path, b"x", told, ephemeral=ephemeral)

    def has(self, path: str) -> bool:
        return path in self.server.nodes


@pytest.fixture
def ensemble() -> Ensemble:
    return Ensemble()


def test_operations_are_done_in_their_order_and_answered(ensemble):
    ensemble.create("/a")
    ensemble.create("/a")
    assert ensemble.told == []
    ensemble.loop.run_for(20)
    assert ensemble.told == [ZkStatus.OK, ZkStatus.NODE_EXISTS]


@pytest.mark.parametrize("arrives", [False, True])
def test_a_write_under_way_when_the_connection_is_lost_is_unknown_done_or_not(ensemble, arrives):
    ensemble.create("/a")
    ensemble.session.cut_off(arrives=arrives)
    ensemble.loop.run_for(20)
    assert ensemble.told == [ZkStatus.UNKNOWN]
    assert ensemble.has("/a") is arrives


def test_what_is_asked_while_cut_off_waits_for_the_connection(ensemble):
    ensemble.create("/lived", ephemeral=True)
    ensemble.loop.run_for(20)
    ensemble.session.cut_off()
    ensemble.create("/a")
    ensemble.loop.run_for(TIMEOUT_MS // 2)
    assert ensemble.session.lease_valid and not ensemble.has("/a")
    ensemble.session.reconnect()
    ensemble.loop.run_for(2 * TIMEOUT_MS)
    assert ensemble.states == [SUSPENDED, CONNECTED]
    assert ensemble.has("/a") and ensemble.has("/lived")


def test_a_session_that_comes_back_too_late_is_lost_with_its_nodes_and_begins_another(ensemble):
    first = ensemble.session.session_id
    ensemble.create("/lived", ephemeral=True)
    ensemble.loop.run_for(20)
    ensemble.session.cut_off()
    ensemble.create("/a")
    ensemble.loop.run_for(TIMEOUT_MS + 1)
    assert not ensemble.session.lease_valid and not ensemble.has("/lived")
    ensemble.session.reconnect()
    ensemble.loop.run_for(20)
    assert ensemble.states == [SUSPENDED, LOST, CONNECTED]
    assert ensemble.told == [ZkStatus.OK, ZkStatus.UNKNOWN] and not ensemble.has("/a")
    assert ensemble.session.session_id != first


def test_an_answer_may_be_lost_of_a_write_that_is_done(ensemble):
    ensemble.session.lose_answers = 1
    ensemble.create("/a")
    ensemble.create("/b")
    ensemble.loop.run_for(20)
    assert ensemble.told == [ZkStatus.UNKNOWN, ZkStatus.OK]
    assert ensemble.has("/a")


def test_a_watch_fires_once_and_also_when_the_connection_is_lost(ensemble):
    fired = []
    ensemble.session.exists("/a", lambda _: None, lambda: fired.append("change"))
    ensemble.session.exists("/b", lambda _: None, lambda: fired.append("cut"))
    ensemble.loop.run_for(20)
    ensemble.create("/a")
    ensemble.loop.run_for(20)
    assert fired == ["change"]
    ensemble.session.cut_off()
    ensemble.loop.run_for(20)
    assert fired == ["change", "cut"]


@pytest.mark.parametrize(("end", "after_ms"), [("close", 0), ("die", TIMEOUT_MS)])
def test_nodes_go_at_once_with_a_session_that_ends_in_order_and_else_after_the_timeout(
    ensemble, end, after_ms
):
    ensemble.create("/lived", ephemeral=True)
    ensemble.loop.run_for(20)
    getattr(ensemble.session, end)()
    if after_ms:
        ensemble.loop.run_for(after_ms - 1)
        assert ensemble.has("/lived")
        ensemble.loop.run_for(2)
    assert not ensemble.has("/lived")
