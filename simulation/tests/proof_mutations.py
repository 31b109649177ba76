"""Deliberate bugs of what proves that a broker is dead, each a patch of the real code: what the
simulation must find."""

from contextlib import ExitStack
from typing import Any

from simulation.run import run_seed
from simulation.tests.mutations import Apply, mutated, set_attribute
from simulation.world import watchers
from simulation.world.watchers import SimulatedWatcher
from storage_engine.broker.watcher.program import has_ended
from storage_engine.broker.watcher.told import session_of
from storage_engine.broker.wiring import parts as cluster
from storage_engine.core.control.death_proof import PortVerdict, RefusedPort
from storage_engine.core.ports import PortAnswer
from storage_engine.core.settings.settings import BY_PROCESS
from storage_engine.zookeeper import session_credentials
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode

MUTATIONS: dict[str, Apply] = {}


def mutation(apply: Apply) -> Apply:
    MUTATIONS[apply.__name__] = apply
    return apply


def failure_of(name: str, seed: int, seconds: int) -> str | None:
    """The promise that a seed finds broken under a mutation; for a process of its own."""
    with mutated(MUTATIONS[name]):
        return run_seed(seed, seconds=seconds, proof=True).rule


@mutation
def a_process_is_known_by_its_number_alone(stack: ExitStack) -> None:
    """Neither the machine nor the time of the start is compared: whoever has the number on this
    machine is taken for the broker of another one. Either comparison alone tells them apart."""

    def may_be_local(own: Any, other: Any) -> bool:
        return own is not None and other is not None

    set_attribute(stack, session_credentials, "may_be_local", may_be_local)
    set_attribute(stack, session_credentials, "is_same_process", lambda named, start_ticks: True)


@mutation
def suspicion_is_taken_for_proof(stack: ExitStack) -> None:
    """Whoever ends a connection is dead, though nothing but the process shall prove it."""

    def dead(self: RefusedPort, answer: PortAnswer) -> PortVerdict:
        return PortVerdict.DEAD

    set_attribute(stack, cluster, "BY_PORT", BY_PROCESS)
    set_attribute(stack, RefusedPort, "probed", dead)


@mutation
def the_end_of_the_pipe_is_taken_for_proof(stack: ExitStack) -> None:
    """A watcher that reads nothing more counts its broker as dead, whatever the kernel says."""

    def is_over(broker: int, lines: Any, timeout_s: float | None) -> bool:
        return has_ended(broker, lines, timeout_s) or lines.is_over

    set_attribute(stack, watchers, "has_ended", is_over)


@mutation
def the_newest_session_is_closed(stack: ExitStack) -> None:
    """A watcher looks up which session its broker has, instead of closing the one that it was told:
    where it is late, that is the next incarnation's."""

    def newest(self: SimulatedWatcher) -> int:
        node = self._server.nodes.get(BrokerIdZNode.path(self.broker_id))
        told = session_of(self._lines.last).session_id
        return told if node is None else node.owner

    set_attribute(stack, SimulatedWatcher, "session_to_close", newest)


@mutation
def an_attempt_counts_as_done(stack: ExitStack) -> None:
    """A watcher that could not close the session ends as if it had."""

    def attempt(self: SimulatedWatcher) -> None:
        if self._machine.reaches_zookeeper and not self._machine.attempt_fails():
            self._close()
        else:
            self._server.on_watcher_done(self.session_to_close())

    set_attribute(stack, SimulatedWatcher, "close_session", attempt)
