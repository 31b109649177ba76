"""Who may close whose session in the simulation."""

from types import SimpleNamespace

import pytest

from simulation.checks.closed_sessions import ClosedSessions
from simulation.checks.ledger import InvariantViolation
from simulation.checks.trace import Trace
from simulation.world.clock import SimulatedLoop

LIVING, DEAD = 1001, 1002


@pytest.fixture
def sessions() -> ClosedSessions:
    """Of a broker that lives and of one that is dead."""
    brokers = [
        SimpleNamespace(id=1, up=True, session=SimpleNamespace(session_id=LIVING)),
        SimpleNamespace(id=2, up=False, session=SimpleNamespace(session_id=DEAD)),
    ]
    cluster = SimpleNamespace(brokers=brokers, zookeeper=SimpleNamespace(live={LIVING}))
    return ClosedSessions(cluster, Trace(SimulatedLoop()))


@pytest.mark.parametrize("by_watcher", [True, False])
def test_the_session_of_a_dead_broker_may_be_closed(sessions, by_watcher):
    sessions.closed(DEAD, by_watcher)
    assert (sessions.of_the_dead, sessions.by_watchers) == (1, by_watcher)


@pytest.mark.parametrize("may_be_mistaken", [True, False])
def test_a_watcher_is_never_mistaken_and_brokers_are_where_ports_are_proof(
    sessions, may_be_mistaken
):
    sessions.may_be_mistaken = may_be_mistaken
    with pytest.raises(InvariantViolation, match="no living broker is taken for dead"):
        sessions.closed(LIVING, True)
    if may_be_mistaken:
        sessions.closed(LIVING, False)
        assert sessions.deposed == {LIVING}
    else:
        with pytest.raises(InvariantViolation, match="no living broker is taken for dead"):
            sessions.closed(LIVING, False)
    assert sessions.of_the_dead == 0


def test_a_session_that_lives_is_not_closed(sessions):
    sessions.watcher_done(DEAD)
    with pytest.raises(InvariantViolation, match="a watcher ends once the session is gone"):
        sessions.watcher_done(LIVING)
