"""Carries out the faults of whole machines, and of the watchers beside brokers: machines that lose
their power or are cut off, watchers that are killed alone or lose their pipe.
"""

import random
from collections.abc import Callable, Iterator

from simulation.faults.disk_faults import Course
from simulation.faults.faults import Fault, FaultKind
from simulation.shared import Run
from simulation.world.broker import SimulatedBroker
from simulation.world.network import CLIENT

Begin = Callable[[Fault, SimulatedBroker], Course]


class MachineFaults:
    """The faults of machines in one run."""

    def __init__(
        self,
        run: Run,
        *,
        cut_session: Begin,
        lose_power: Callable[[Fault, SimulatedBroker], None],
        start_if_down: Callable[[SimulatedBroker], None],
        later: Callable[[int, Callable[[], None]], None],
    ) -> None:
        """`cut_session` cuts one broker off from ZooKeeper."""
        self._cluster = run.cluster
        self._trace = run.trace
        self._cut_session = cut_session
        self._lose_power = lose_power
        self._start_if_down = start_if_down
        self._later = later
        self.ways: dict[FaultKind, Begin] = {
            FaultKind.DARK_MACHINE: self._go_dark,
            FaultKind.KILLED_UNITS: self._kill_units,
            FaultKind.MACHINE_CUT_OFF: self._cut_off,
            FaultKind.MACHINE_CUT_OFF_ONE_WAY: self._cut_off,
            FaultKind.MACHINE_WITHOUT_ZOOKEEPER: self._without_zookeeper,
            FaultKind.KILLED_WATCHER: self._kill_watcher,
            FaultKind.LOST_PIPE: self._lose_pipe,
        }

    def can_start(self, broker: SimulatedBroker) -> bool:
        """Whether the broker's machine has power and reaches ZooKeeper."""
        return broker.id not in self._cluster.network.dark and broker.machine.reaches_zookeeper

    def heal(self) -> None:
        """Connect all machines; those without power are the network's."""
        for broker in self._cluster.brokers:
            broker.machine.cuts = 0

    def _of_its_machine(self, broker: SimulatedBroker) -> list[SimulatedBroker]:
        return [each for each in self._cluster.brokers if each.machine is broker.machine]

    def _go_dark(self, fault: Fault, broker: SimulatedBroker) -> Course:
        network, brokers = self._cluster.network, self._of_its_machine(broker)
        if not any(each.up for each in brokers):
            return
        machine = broker.machine
        machine.is_dark = True
        after = machine.after_power_loss()
        # First: nobody hears of what ends now.
        network.dark.update(each.id for each in brokers)
        self._trace.note(f"the machine of brokers {[each.id for each in brokers]} goes dark")
        for each in brokers:
            if each.up:
                each.lose_machine(after)
            each.machine = after
            self._lose_power(fault, each)
        yield
        for each in brokers:
            network.light(each.id)
        network.release()
        for each in brokers:
            self._start_if_down(each)

    def _kill_units(self, fault: Fault, broker: SimulatedBroker) -> Course:
        brokers = self._of_its_machine(broker) if fault.seed % 2 else [broker]
        for each in brokers:
            if each.up:
                each.kill_unit()
        yield
        for each in brokers:
            self._start_if_down(each)

    def _cut_off(self, fault: Fault, broker: SimulatedBroker) -> Course:
        network, brokers = self._cluster.network, self._of_its_machine(broker)
        inside = {each.id for each in brokers}
        outside = {CLIENT, *(each.id for each in self._cluster.brokers)} - inside
        there = {(one, other) for one in inside for other in outside}
        directions = there | {(other, one) for one, other in there}
        zookeeper_too = True
        if fault.kind is FaultKind.MACHINE_CUT_OFF_ONE_WAY:
            directions = there if fault.seed % 2 else directions - there
            zookeeper_too = fault.seed % 4 < 2
        network.held_up |= directions
        zookeeper = self._from_zookeeper(fault, brokers) if zookeeper_too else iter(())
        next(zookeeper, None)
        yield
        network.held_up -= directions
        network.release()
        next(zookeeper, None)

    def _from_zookeeper(self, fault: Fault, brokers: list[SimulatedBroker]) -> Iterator[None]:
        """Cut the brokers' sessions and their watchers off, until the next step."""
        brokers[0].machine.cuts += 1
        # One that has not joined yet would end itself, and be started again.
        running = [each for each in brokers if each.serving and not each.loop.paused]
        cuts = [self._cut_session(fault, each) for each in running]
        begun = [cut for cut in cuts if next(cut, _IMPOSSIBLE) is not _IMPOSSIBLE]
        yield
        # After a loss of power it is another one, and cut off as it was.
        for each in {id(each.machine): each.machine for each in brokers}.values():
            each.cuts = max(0, each.cuts - 1)
        for cut in begun:
            next(cut, None)

    def _without_zookeeper(self, fault: Fault, broker: SimulatedBroker) -> Course:
        brokers = self._of_its_machine(broker)
        zookeeper = self._from_zookeeper(fault, brokers)
        next(zookeeper)
        life = broker.life

        def kill() -> None:
            if broker.up and broker.life == life:
                self._trace.note(f"broker {broker.id} is killed, and its watcher can't tell")
                broker.kill()

        self._later(random.Random(fault.seed).randint(1, max(1, fault.for_ms)), kill)
        yield
        next(zookeeper, None)
        self._start_if_down(broker)

    def _kill_watcher(self, _fault: Fault, broker: SimulatedBroker) -> Course:
        if broker.watcher is None or not broker.watcher.lives:
            return
        broker.kill_watcher()
        yield

    def _lose_pipe(self, _fault: Fault, broker: SimulatedBroker) -> Course:
        if broker.watcher is None or not broker.watcher.lives:
            return
        broker.watcher.pipe_ended()
        yield


_IMPOSSIBLE = object()
