"""R-CTL8: the controller dies at every single step of a reassignment, and the next one ends it.

A step is a write of the controller in ZooKeeper, or a request of it to a broker. `make test` takes
every seventh of them, HEADRACE_FAULTS=full all.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simulation.world.broker import SimulatedBroker
from storage_engine.tests.broker.controller.reassigning import TP, Moving
from storage_engine.tests.sampling import ALL_FAULTS

OLD, NEW = (1, 2, 3), (4, 5, 6)
ORDERS = frozenset((4, 5, 6))
"""Keys of what the controller sends: LeaderAndIsr, StopReplica, UpdateMetadata."""

STEPS = 110
"""More than there are: the last runs are without a kill, which is asserted."""


class Steps:
    """Counts what the first controller does, and kills it at one step."""

    def __init__(self, cluster: Moving, kill_at: int) -> None:
        assert cluster.controller is not None
        self._controller: SimulatedBroker = cluster.controller
        self._life = self._controller.life
        self._kill_at = kill_at
        self._cluster = cluster
        self.count = 0
        self.killed_at: str | None = None
        for name in ("one", "multi"):
            self._count_writes(name)
        self._count_orders()

    def _count_writes(self, name: str) -> None:
        zookeeper = self._cluster.zookeeper
        write = getattr(zookeeper, name)

        def counted(operations: Any, session_id: int) -> Any:
            reply = write(operations, session_id)
            if session_id == self._controller.session.session_id:
                self._step(f"{name} {operations}")
            return reply

        setattr(zookeeper, name, counted)

    def _count_orders(self) -> None:
        transport = self._controller.transport
        request = transport.request

        def counted(endpoint: Any, channel: str, spec: Any, *rest: Any, **named: Any) -> None:
            if spec.key in ORDERS:
                self._step(f"{spec.name} to {endpoint.broker_id}")
            request(endpoint, channel, spec, *rest, **named)

        transport.request = counted  # type: ignore[method-assign]

    def _step(self, what: str) -> None:
        if self.killed_at is not None or self._controller.life != self._life:
            return
        self.count += 1
        if self.count == self._kill_at:
            self.killed_at = what
            self._cluster.loop.call_soon(self._kill)

    def _kill(self) -> None:
        self._controller.kill(session_ends_at_once=True)


def moved(folder: Path, kill_at: int, begin: Callable[[Moving], None]) -> Steps:
    cluster = Moving(folder)
    try:
        cluster.create(OLD)
        for number in range(3):
            cluster.produced(TP, b"record %d" % number)
        cluster.wait_in_sync(TP, *OLD)
        steps = Steps(cluster, kill_at)
        begin(cluster)
        cluster.loop.run_until(
            lambda: cluster.is_done(NEW) or steps.killed_at is not None, limit_ms=60_000
        )
        cluster.produced(TP, b"on the way")
        for broker in cluster.brokers:
            if not broker.up:
                broker.start()
        cluster.wait_done(NEW)
        cluster.loop.run_until(lambda: cluster.holders() == set(NEW))
        cluster.loop.run_until(lambda: len({cluster.contents(b) for b in NEW}) == 1)
        content = cluster.contents(NEW[0])
        for record in (b"record 0", b"record 1", b"record 2", b"on the way"):
            assert content.count(record) >= 1, f"{record!r} is lost, killed at {steps.killed_at}"
        return steps
    finally:
        cluster.close()


def by_node(cluster: Moving) -> None:
    cluster.ask_by_node({TP: NEW})


@pytest.mark.parametrize("kill_at", range(1, STEPS, 1 if ALL_FAULTS else 14))
def test_the_next_controller_ends_what_the_killed_one_began(tmp_path, kill_at):
    moved(tmp_path, kill_at, by_node)


def test_a_run_without_a_kill_has_fewer_steps_than_are_tried(tmp_path):
    steps = moved(tmp_path, 10_000, by_node)
    assert 20 < steps.count < STEPS, steps.count


@pytest.mark.parametrize("kill_at", range(1, 20, 1 if ALL_FAULTS else 5))
def test_every_controller_is_killed_soon_and_it_ends_nevertheless(tmp_path, kill_at):
    cluster = Moving(tmp_path)
    try:
        cluster.create(OLD)
        cluster.produced(TP, b"record")
        cluster.ask_by_node({TP: NEW})
        for _ in range(6):
            cluster.loop.run_until(lambda: cluster.controller is not None)
            steps = Steps(cluster, kill_at)
            cluster.loop.run_until(
                lambda steps=steps: steps.killed_at is not None or cluster.is_done(NEW)  # type: ignore[misc]
            )
            cluster.loop.run_for(200)
            for broker in cluster.brokers:
                if not broker.up:
                    broker.start()
            cluster.loop.run_for(3000)
        cluster.wait_done(NEW)
        cluster.loop.run_until(lambda: cluster.holders() == set(NEW))
        assert b"record" in cluster.contents(NEW[0])
    finally:
        cluster.close()
