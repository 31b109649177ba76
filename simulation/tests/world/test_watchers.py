"""A simulated watcher closes the session that its broker had, once the broker has ended."""

import pytest

from simulation.world.clock import SimulatedLoop
from simulation.world.processes import SimulatedMachine, SimulatedProcess
from simulation.world.watchers import PAUSE_MS, SimulatedWatcher
from simulation.world.zookeeper import SimulatedZooKeeper
from storage_engine.broker.watcher.closing import SESSION_TIMEOUTS

TIMEOUT_MS = 6_000
ACTS_MS = 5
ATTEMPT_MS = 3
"""A round trip to connect, and the way of the request."""


class Watched:
    """A process with a session, and its watcher."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.server = SimulatedZooKeeper(self.loop)
        self.machine = SimulatedMachine("a")
        self.machine.watcher_ms = lambda: ACTS_MS
        self.process: SimulatedProcess = self.machine.begin(0)
        self.session = self.server.new_session()
        self.watcher = SimulatedWatcher(self.server, self.process, 1, session_timeout_ms=TIMEOUT_MS)
        self.watcher.told(self.session)
        self.done: list[int] = []
        self.server.on_watcher_done = self.done.append

    @property
    def lives(self) -> bool:
        return self.session in self.server.live


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_the_session_is_closed_after_the_end_of_the_process_and_not_before(watched):
    watched.loop.run_for(TIMEOUT_MS)
    assert watched.lives
    watched.process.end()
    watched.loop.run_for(ACTS_MS + ATTEMPT_MS - 1)
    assert watched.lives and not watched.done
    watched.loop.run_for(1)
    assert not watched.lives and watched.done == [watched.session]


def test_a_late_watcher_closes_no_later_session(watched):
    watched.process.end()
    next_session = watched.server.new_session()
    watched.loop.run_for(TIMEOUT_MS)
    assert watched.server.live == {next_session}


def test_the_last_session_that_was_told_counts(watched):
    newer = watched.server.new_session()
    watched.watcher.told(newer)
    watched.process.end()
    watched.loop.run_for(TIMEOUT_MS)
    assert watched.server.live == {watched.session}


def test_the_end_of_the_pipe_proves_nothing(watched):
    watched.watcher.pipe_ended()
    watched.loop.run_for(TIMEOUT_MS)
    assert watched.lives
    watched.process.end()
    watched.loop.run_for(TIMEOUT_MS)
    assert not watched.lives


def test_a_broker_that_has_closed_its_session_has_a_watcher_that_ends(watched):
    watched.watcher.told(0)
    assert not watched.watcher.lives
    watched.process.end()
    watched.loop.run_for(TIMEOUT_MS)
    assert watched.lives, "another closes it"


def test_an_attempt_that_fails_is_repeated(watched):
    failures = [True, True, False]
    watched.machine.attempt_fails = lambda: failures.pop(0)
    watched.process.end()
    watched.loop.run_for(ACTS_MS + PAUSE_MS + 2 * PAUSE_MS)
    assert watched.lives and not watched.done
    watched.loop.run_for(ATTEMPT_MS)
    assert not watched.lives


def test_it_closes_late_where_its_machine_was_cut_off(watched):
    watched.machine.cuts = 1
    watched.process.end()
    watched.loop.run_for(TIMEOUT_MS // 2)
    assert watched.lives
    watched.machine.cuts = 0
    watched.loop.run_for(TIMEOUT_MS // 2)
    assert not watched.lives


def test_it_gives_up_once_the_session_must_have_expired(watched):
    watched.machine.cuts = 1
    watched.process.end()
    watched.loop.run_for((SESSION_TIMEOUTS + 1) * TIMEOUT_MS)
    watched.machine.cuts = 0
    watched.loop.run_for(TIMEOUT_MS)
    assert watched.lives, "the server would have dropped it long ago"
    assert not watched.done


@pytest.mark.parametrize("before", [True, False], ids=["before", "meanwhile"])
@pytest.mark.parametrize("how", ["killed", "dark"])
def test_a_watcher_that_has_ended_closes_nothing(watched, how, before):
    def end() -> None:
        watched.machine.is_dark = how == "dark"
        if how == "killed":
            watched.watcher.die()

    if before:
        end()
    watched.process.end()
    end()
    watched.loop.run_for(TIMEOUT_MS)
    assert watched.lives and not watched.watcher.lives
