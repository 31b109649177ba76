"""Whole machines fail, and watchers beside brokers do: who ends, who notices, and what is kept."""

from collections.abc import Iterator

import pytest

from simulation.checks.checkers import Checker
from simulation.checks.trace import Trace
from simulation.faults.faults import Fault, FaultKind
from simulation.faults.injection import Injector
from simulation.shared import Run, profile_of
from simulation.world.broker import SESSION_TIMEOUT_MS
from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from simulation.world.processes import SimulatedMachine
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import PortAnswer, SessionState

TP = TopicPartition("t", 0)
AT_ONCE_MS = 1000
"""Much less than a session lives; enough for a watcher, and for the controller."""
LONG_MS = 2 * SESSION_TIMEOUT_MS
FIRST, SECOND, OTHER = 1, 2, 3
"""Two brokers on one machine, and one on another."""


class World:
    """A cluster on two machines, and what can go wrong with it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        trace = Trace(cluster.loop)
        self.checker = Checker(cluster, trace)
        run = Run(0, profile_of(0), cluster, trace, self.checker)
        for broker in cluster.brokers:
            self.checker.started(broker)
        cluster.loop.after_event = self.checker.after_event
        cluster.zookeeper.on_write = self.checker.on_zookeeper_write
        cluster.zookeeper.on_session_closed = self.checker.sessions.closed
        cluster.zookeeper.on_watcher_done = self.checker.sessions.watcher_done
        self.checker.expect_topic("t", unclean=False, min_in_sync=1)
        self.checker.expect_topic("u", unclean=False, min_in_sync=1)
        self.injector = Injector(run, growing_topic="u", partitions=[TP])
        assert cluster.create_topic("t").error_code == 0
        assert cluster.produced_when_there(TP, b"first") == 0
        cluster.wait_in_sync(TP, FIRST, SECOND, OTHER)

    def begin(self, kind: FaultKind, *, broker: int = FIRST, seed: int = 0) -> None:
        """Begin a fault that lasts `LONG_MS`."""
        fault = Fault(number=1, at_ms=0, kind=kind, broker=broker, for_ms=LONG_MS, seed=seed)
        self.injector.schedule([fault])
        self.cluster.loop.run_for(1)
        assert self.injector.done[kind] == 1

    def registered(self) -> set[int]:
        return {int(each) for each in self.cluster.zookeeper.children("/brokers/ids")}

    def up(self) -> set[int]:
        return {broker.id for broker in self.cluster.brokers if broker.up}

    def run_for(self, ms: int) -> None:
        self.cluster.loop.run_for(ms)

    def is_whole_again(self) -> None:
        """All are back and have what was acknowledged."""
        self.cluster.wait_in_sync(TP, FIRST, SECOND, OTHER)
        self.checker.check_everything()


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    one, other = SimulatedMachine("a"), SimulatedMachine("b")
    made = SimulatedCluster(
        tmp_path,
        disk=lambda broker: SimulatedDisk(tmp_path / f"broker{broker}"),
        machines=[one, one, other],
        auto_leader_rebalance_enable="false",
        broker_death_proof="process",
    )
    yield World(made)
    made.close()


def test_a_killed_broker_is_gone_at_once_wherever_the_others_run(world):
    world.begin(FaultKind.KILL, broker=OTHER)
    world.run_for(AT_ONCE_MS)
    assert world.registered() == {FIRST, SECOND}
    assert world.checker.sessions.by_watchers == 1
    world.run_for(LONG_MS)
    world.is_whole_again()


def test_a_machine_that_goes_dark_takes_all_its_brokers_and_nobody_notices(world):
    leader = world.cluster.state(TP).leader
    before = world.cluster[FIRST].machine
    world.begin(FaultKind.DARK_MACHINE)
    assert world.up() == {OTHER}
    assert world.cluster.network.answer_of(OTHER, FIRST) is PortAnswer.SILENT
    world.run_for(AT_ONCE_MS)
    assert world.registered() == {FIRST, SECOND, OTHER}, "their sessions decide"
    world.run_for(SESSION_TIMEOUT_MS)
    assert world.registered() == {OTHER}
    assert world.cluster.state(TP).leader in (OTHER, -1) or leader == OTHER
    world.run_for(LONG_MS)
    world.is_whole_again()
    assert world.checker.sessions.of_the_dead == 0
    assert world.cluster[FIRST].machine is world.cluster[SECOND].machine is not before


@pytest.mark.parametrize(("seed", "killed"), [(0, {FIRST}), (1, {FIRST, SECOND})])
def test_a_unit_that_is_killed_whole_is_noticed_by_those_on_its_machine_alone(world, seed, killed):
    world.begin(FaultKind.KILLED_UNITS, seed=seed)
    assert world.up() == {FIRST, SECOND, OTHER} - killed
    world.run_for(AT_ONCE_MS)
    is_noticed = len(killed) == 1
    assert world.registered() == {SECOND, OTHER} | ({FIRST} - killed if is_noticed else killed)
    world.run_for(LONG_MS)
    assert world.checker.sessions.by_watchers == 0
    assert world.checker.sessions.of_the_dead == is_noticed
    world.is_whole_again()


def test_a_machine_that_is_cut_off_loses_its_sessions_and_comes_back_as_it_was(world):
    world.begin(FaultKind.MACHINE_CUT_OFF)
    assert world.cluster[SECOND].session.state is SessionState.SUSPENDED
    world.run_for(SESSION_TIMEOUT_MS + AT_ONCE_MS)
    assert world.registered() == {OTHER}
    assert world.up() == {FIRST, SECOND, OTHER}
    world.run_for(LONG_MS)
    world.is_whole_again()
    assert world.checker.sessions.of_the_dead == 0


@pytest.mark.parametrize(("seed", "out", "keeps_session"), [
    (1, True, False), (0, False, False), (3, True, True), (2, False, True),
])  # fmt: skip
def test_a_machine_may_be_cut_off_one_way_with_its_sessions_or_without(
    world, seed, out, keeps_session
):
    world.begin(FaultKind.MACHINE_CUT_OFF_ONE_WAY, seed=seed)
    way = (FIRST, OTHER) if out else (OTHER, FIRST)
    held_up = world.cluster.network.held_up
    assert way in held_up and way[::-1] not in held_up and (FIRST, SECOND) not in held_up
    world.run_for(SESSION_TIMEOUT_MS + AT_ONCE_MS)
    assert ({FIRST, SECOND} <= world.registered()) is keeps_session
    world.run_for(LONG_MS)
    world.is_whole_again()


def test_a_watcher_without_zookeeper_closes_the_session_late(world):
    world.cluster[OTHER].machine.cuts = 1
    old = world.cluster[OTHER].session.session_id
    world.cluster[OTHER].kill()
    world.run_for(AT_ONCE_MS)
    assert old in world.cluster.zookeeper.live
    world.cluster[OTHER].machine.cuts = 0
    world.run_for(2 * AT_ONCE_MS)
    assert old not in world.cluster.zookeeper.live
    assert world.checker.sessions.by_watchers == 1


def test_a_broker_is_killed_on_a_machine_without_zookeeper_and_starts_when_it_is_back(world):
    world.begin(FaultKind.MACHINE_WITHOUT_ZOOKEEPER, broker=OTHER)
    world.run_for(LONG_MS - 2)
    assert world.up() == {FIRST, SECOND}
    world.run_for(AT_ONCE_MS)
    world.is_whole_again()
    assert not world.cluster[OTHER].machine.cuts


def test_without_its_watcher_the_session_of_a_killed_broker_decides(world):
    world.begin(FaultKind.KILLED_WATCHER, broker=OTHER)
    world.cluster[OTHER].kill()
    world.run_for(AT_ONCE_MS)
    assert world.registered() == {FIRST, SECOND, OTHER}
    world.run_for(SESSION_TIMEOUT_MS)
    assert world.registered() == {FIRST, SECOND}


def test_a_broker_starts_another_watcher(world):
    world.begin(FaultKind.KILLED_WATCHER, broker=OTHER)
    first = world.cluster[OTHER].watcher
    world.run_for(LONG_MS)
    assert world.cluster[OTHER].watcher is not first
    world.cluster[OTHER].kill()
    world.run_for(AT_ONCE_MS)
    assert world.registered() == {FIRST, SECOND}


def test_a_broker_that_has_lost_its_pipe_lives_on(world):
    world.begin(FaultKind.LOST_PIPE, broker=OTHER)
    world.run_for(LONG_MS)
    assert world.registered() == {FIRST, SECOND, OTHER}
    assert world.checker.sessions.of_the_dead == 0
