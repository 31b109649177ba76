"""Carries out the faults of a schedule on a cluster.

A fault is a generator: the code before its `yield` begins the fault, the code after it ends it when
the fault's time is over. A fault that is impossible just then (its broker is down already, say)
yields nothing. `heal` ends all faults.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from simulation.faults.administrator import WISHES, Administrator
from simulation.faults.disk_faults import Course, DiskFaults
from simulation.faults.faults import Fault, FaultKind, Trait
from simulation.faults.machine_faults import MachineFaults
from simulation.faults.scripts import SCRIPTS, Condition, Scene, Script
from simulation.shared import Run
from simulation.world.broker import SimulatedBroker
from simulation.world.disk import SimulatedDisk
from storage_engine.broker.transactions.marker_sender import CHANNEL
from storage_engine.core.ids import (
    GROUP_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    TopicPartition,
)
from storage_engine.core.ports import SessionState
from storage_engine.protocol.apis import controlled_shutdown
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerZNode
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode

RESTART_PAUSE_MS = 30
"""The delay after which a supervisor starts a broker again."""
SLOW_NETWORK_MAX_MS = 200
SLOW_ZOOKEEPER_MAX_MS = 600
RESEND_MAX_MS = 100
LATE_MAX_MS = 3000
"""The longest delay after which a broker that kept its power starts, after the others; its session
may have ended."""
LEAVE_MS = 1500
"""How long a broker in controlled shutdown waits for its leaders to move."""
POLL_MS = 5
"""The interval at which a script's conditions are checked."""


class Injector:
    """The faults of one run."""

    def __init__(
        self, run: Run, *, growing_topic: str, partitions: Sequence[TopicPartition]
    ) -> None:
        """`partitions`: the partitions for scripts and reassignments."""
        self._cluster = cluster = run.cluster
        self._checker = run.checker
        self._trace = run.trace
        self._profile = run.profile
        self._choose = choose = run.chooser("delays")
        self._about = partitions
        self._scripts: list[Script] = []
        """The scripts under way."""
        self._slow_network = 0
        self._slow_zookeeper = 0
        self._healed = False
        self._administrator = Administrator(run, growing_topic, partitions)
        self._disks = DiskFaults(run, self._restart, self._later)
        self._machines = MachineFaults(
            run,
            cut_session=self._cut_session,
            lose_power=self._lose_power,
            start_if_down=self._start_if_down,
            later=self._later,
        )
        self.done: Counter[FaultKind] = Counter()
        self._ways: dict[FaultKind, Callable[[Fault, SimulatedBroker], Course]] = {
            FaultKind.KILL: self._kill,
            FaultKind.POWER_LOSS: self._kill,
            FaultKind.POWER_LOSS_OF_ALL: self._kill_all,
            FaultKind.POWER_LOSS_OF_ALL_BUT_ONE: self._kill_all,
            FaultKind.QUICK_RESTART: self._restart_quickly,
            FaultKind.LEAVE: self._leave,
            FaultKind.PAUSE: self._pause,
            FaultKind.SLOW_DISK: self._slow_disk,
            FaultKind.SESSION_CUT: self._cut_session,
            FaultKind.LOST_ANSWERS: self._lose_answers,
            FaultKind.SLOW_SESSION: self._slow_session,
            FaultKind.CONTROLLER_CHANGE: self._change_controller,
            FaultKind.STALE_ORDERS: self._delay_orders,
            FaultKind.LATE_MARKERS: self._delay_markers,
            FaultKind.LOST_MARKERS: self._delay_markers,
            FaultKind.SLOW_LOAD: self._slow_load,
            FaultKind.REFUSED_PORT: self._refuse_port,
            FaultKind.SLOW_NETWORK: self._slow_down_network,
            FaultKind.SLOW_ZOOKEEPER: self._slow_down_zookeeper,
            **dict.fromkeys(WISHES, self._request),
            **dict.fromkeys(SCRIPTS, self._run_script),
            **dict.fromkeys(FaultKind.having(Trait.BETWEEN_TWO), self._between_two),
            **self._disks.ways,
            **self._machines.ways,
        }
        cluster.network.resend_ms = lambda: choose.randint(0, RESEND_MAX_MS)
        cluster.network.delay_ms = self._network_delay_ms
        cluster.zookeeper.delay_ms = self._zookeeper_delay_ms
        for broker in cluster.brokers:
            broker.session.delay_ms = self._zookeeper_delay_ms

    def schedule(self, faults: list[Fault]) -> None:
        for fault in faults:
            self._later(fault.at_ms, partial(self._begin, fault))

    def heal(self) -> None:
        """End all faults: start what is down, and connect what is cut off."""
        self._healed = True
        self._slow_network = self._slow_zookeeper = 0
        self._cluster.loop.work_ms = 1
        for script in self._scripts:
            script.close()
        self._trace.note("--- the faults are over ---")
        self._cluster.network.heal()
        self._disks.heal()
        self._machines.heal()
        for broker in self._cluster.brokers:
            if broker.serving and broker.parts.cluster.registration.is_leaving:
                broker.kill()
            if not broker.up:
                self._start(broker)
                continue
            if broker.loop.paused:
                broker.resume()
            broker.loop.release()
            broker.session.lose_answers = 0
            broker.session.delay_ms = self._zookeeper_delay_ms
            if broker.session.state is SessionState.SUSPENDED:
                broker.session.reconnect()

    def _network_delay_ms(self) -> int:
        if self._slow_network:
            return self._choose.randint(1, SLOW_NETWORK_MAX_MS)
        return self._choose.randint(1, self._profile.network_delay_max_ms)

    def _zookeeper_delay_ms(self) -> int:
        if self._slow_zookeeper:
            return self._choose.randint(1, SLOW_ZOOKEEPER_MAX_MS)
        return self._choose.randint(1, self._profile.zookeeper_delay_max_ms)

    def _later(self, delay_ms: int, what: Callable[[], None]) -> None:
        self._cluster.loop.call_later(delay_ms, lambda: None if self._healed else what())

    def _begin(self, fault: Fault) -> None:
        broker = self._cluster[fault.broker]
        if fault.kind.traits & Trait.RUNNING and not _runs(broker):
            return
        course = self._ways[fault.kind](fault, broker)
        if next(course, _IMPOSSIBLE) is _IMPOSSIBLE:
            return
        self.done[fault.kind] += 1
        self._trace.note(f"fault {fault.number}: {fault}")
        if fault.for_ms:

            def over() -> None:
                self._trace.note(f"fault {fault.number} is over: {fault}")
                next(course, None)

            self._later(fault.for_ms, over)

    def _restart_quickly(self, _fault: Fault, broker: SimulatedBroker) -> Course:
        self._restart(broker)
        yield

    def _restart(self, broker: SimulatedBroker) -> None:
        broker.kill(session_ends_at_once=broker.machine.reaches_zookeeper)
        self._later(RESTART_PAUSE_MS, lambda: self._start_if_down(broker))

    def _kill(self, fault: Fault, broker: SimulatedBroker) -> Course:
        if fault.kind is FaultKind.POWER_LOSS:
            broker.lose_machine()
            self._lose_power(fault, broker)
        else:
            broker.kill()
        yield
        self._start_if_down(broker)

    def _kill_all(self, fault: Fault, spared: SimulatedBroker) -> Course:
        but_one = fault.kind is FaultKind.POWER_LOSS_OF_ALL_BUT_ONE
        for broker in self._cluster.brokers:
            if broker.up:
                broker.lose_machine()
            if not (but_one and broker is spared):
                self._lose_power(fault, broker)
        yield
        for broker in self._cluster.brokers:
            if not (but_one and broker is spared):
                self._start_if_down(broker)
        if but_one:
            late_ms = random.Random(fault.seed).randint(1, LATE_MAX_MS)
            self._later(late_ms, lambda: self._start_if_down(spared))

    def _lose_power(self, fault: Fault, broker: SimulatedBroker) -> None:
        assert isinstance(broker.disk, SimulatedDisk)
        broker.disk.lose_power(random.Random(f"{fault.seed} {broker.id}"))
        self._checker.lost_power(broker)

    def _start_if_down(self, broker: SimulatedBroker) -> None:
        if broker.up:
            return
        if self._machines.can_start(broker):
            self._start(broker)
        else:
            self._later(RESTART_PAUSE_MS, lambda: self._start_if_down(broker))

    def _start(self, broker: SimulatedBroker) -> None:
        self._trace.note(f"broker {broker.id} starts")
        broker.begin()
        self._checker.started(broker)

    def _leave(self, _fault: Fault, broker: SimulatedBroker) -> Course:
        """Begin a controlled shutdown; after a while the broker stops in order, whether that is
        done or not."""
        controller = self._cluster.controller
        if controller is None:
            return
        life = broker.life
        broker.parts.cluster.registration.leave()
        request = controlled_shutdown.ControlledShutdownRequest(
            broker_id=BrokerId(broker.id), broker_epoch=broker.broker_epoch
        )
        answers = self._cluster.ask(controller.id, controlled_shutdown.API, 0, request)

        def stop() -> None:
            if broker.life == life and _runs(broker):
                self._trace.note(f"broker {broker.id} stops {'after' if answers else 'without'} it")
                broker.stop()

        self._later(LEAVE_MS, stop)
        yield
        if broker.life == life and broker.up:
            if _runs(broker):
                broker.stop()
            else:
                broker.kill()
        self._start_if_down(broker)

    def _pause(self, _fault: Fault, broker: SimulatedBroker) -> Course:
        life = broker.life
        broker.pause()
        yield
        if broker.life == life and broker.up:
            broker.resume()

    def _slow_disk(self, _fault: Fault, broker: SimulatedBroker) -> Course:
        loop = broker.loop
        if loop.held is not None:
            return
        loop.held = []
        yield
        if broker.up and broker.loop is loop:
            loop.release()

    def _cut_session(self, fault: Fault, broker: SimulatedBroker) -> Course:
        session = broker.session
        if session.state is not SessionState.CONNECTED:
            return
        session.cut_off(arrives=fault.seed % 2 == 0)

        def reconnect() -> None:
            if not broker.up or broker.session is not session:
                return
            if broker.loop.paused or not broker.machine.reaches_zookeeper:
                self._later(RESTART_PAUSE_MS, reconnect)
            elif session.state is SessionState.SUSPENDED:
                session.reconnect()

        yield
        reconnect()

    def _lose_answers(self, fault: Fault, broker: SimulatedBroker) -> Course:
        broker.session.lose_answers = 1 + fault.seed % 3
        yield

    def _slow_session(self, _fault: Fault, broker: SimulatedBroker) -> Course:
        session = broker.session
        session.delay_ms = lambda: self._choose.randint(1, SLOW_ZOOKEEPER_MAX_MS)
        yield
        session.delay_ms = self._zookeeper_delay_ms

    def _change_controller(self, _fault: Fault, _broker: SimulatedBroker) -> Course:
        if self._cluster.zookeeper.data(ControllerZNode.PATH) is None:
            return
        self._cluster.zookeeper.drop(ControllerZNode.PATH)
        yield

    def _delay_orders(self, fault: Fault, _broker: SimulatedBroker) -> Course:
        controller = self._cluster.controller
        others = [b for b in self._cluster.brokers if b is not controller]
        if controller is None or len(others) < 2:
            return
        receiver, restarted = random.Random(fault.seed).sample(others, 2)
        direction = (controller.id, receiver.id)
        network, zookeeper = self._cluster.network, self._cluster.zookeeper
        network.held_up.add(direction)
        self._trace.note(
            f"orders from broker {controller.id} to {receiver.id} are held up,"
            f" broker {restarted.id} restarts twice"
        )

        def restart() -> None:
            if _runs(restarted):
                self._restart(restarted)

        def replace() -> None:
            if zookeeper.data(ControllerZNode.PATH) is not None:
                zookeeper.drop(ControllerZNode.PATH)

        restart()
        step_ms = max(1, fault.for_ms // 4)
        # This comes before the connection is given up: orders that are sent anew have another
        # leader epoch.
        self._later(step_ms, restart)
        self._later(2 * step_ms, lambda: network.give_up(*direction))
        if fault.seed % 2:
            self._later(3 * step_ms, replace)
        yield
        network.held_up.discard(direction)
        network.release()

    def _delay_markers(self, fault: Fault, _broker: SimulatedBroker) -> Course:
        """Delay markers. Late ones are sent again when the first ones are still under way; lost
        ones are lost with their sender."""
        broker = self._coordinator(fault, TRANSACTION_STATE_TOPIC)
        if broker is None or not _runs(broker):
            return
        self._trace.note(f"markers of broker {broker.id} take {fault.for_ms} ms")
        network, way = self._cluster.network, (broker.id, CHANNEL)
        network.late_ms[way] = self._cluster.loop.now_ms + fault.for_ms

        def go_on() -> None:
            network.late_ms.pop(way, None)
            if fault.kind is FaultKind.LATE_MARKERS:
                network.give_up_channel(*way)
            elif _runs(broker):
                self._restart(broker)

        self._later(fault.for_ms // 3, go_on)
        yield

    def _slow_load(self, fault: Fault, _broker: SimulatedBroker) -> Course:
        topic = GROUP_OFFSETS_TOPIC if fault.for_ms % 3 else TRANSACTION_STATE_TOPIC
        broker = self._coordinator(fault, topic)
        if broker is None or not _runs(broker):
            return
        loop = self._cluster.loop
        # A load consists of three pieces of work, one after another.
        loop.work_ms = max(loop.work_ms, fault.for_ms // 3)
        self._restart(broker)
        yield
        loop.work_ms = 1

    def _coordinator(self, fault: Fault, topic: str) -> SimulatedBroker | None:
        """Return the leader of a coordinators' partition, according to ZooKeeper."""
        logs = [tp for tp in self._about if tp.topic == topic]
        tp = logs[fault.seed % len(logs)]
        data = self._cluster.zookeeper.data(PartitionStateZNode.path(tp.topic, tp.partition))
        if data is None:
            return None
        leader = PartitionStateZNode.decode(tp.topic, tp.partition, data).leader
        return self._cluster[leader] if leader != -1 else None

    def _slow_down_network(self, _fault: Fault, _broker: SimulatedBroker) -> Course:
        self._slow_network += 1
        yield
        self._slow_network -= 1

    def _slow_down_zookeeper(self, _fault: Fault, _broker: SimulatedBroker) -> Course:
        self._slow_zookeeper += 1
        yield
        self._slow_zookeeper -= 1

    def _refuse_port(self, _fault: Fault, broker: SimulatedBroker) -> Course:
        network, others = self._cluster.network, self._cluster.brokers
        pairs = {frozenset((broker.id, other.id)) for other in others if other is not broker}
        network.refused |= pairs
        for pair in pairs:
            network.cut(*pair)
        yield
        network.refused -= pairs
        network.cuts -= pairs

    def _between_two(self, fault: Fault, _broker: SimulatedBroker) -> Course:
        network, one, other = self._cluster.network, fault.broker, fault.other
        match fault.kind:
            case FaultKind.RESET:
                network.reset(one, other)
                yield
            case FaultKind.GIVE_UP:
                network.give_up(one, other)
                yield
            case FaultKind.CUT:
                network.cut(one, other)
                yield
                network.cuts.discard(frozenset((one, other)))
            case _:
                directions = {(one, other), (other, one)}
                if fault.kind is FaultKind.ONE_WAY_PARTITION:
                    directions = {(one, other) if fault.seed % 2 else (other, one)}
                network.held_up |= directions
                yield
                network.held_up -= directions
                network.release()

    def _request(self, fault: Fault, _broker: SimulatedBroker) -> Course:
        if self._administrator.request(fault):
            yield

    def _run_script(self, fault: Fault, _broker: SimulatedBroker) -> Course:
        tp = self._about[fault.seed % len(self._about)]

        def order() -> None:
            self._administrator.create_topic(f"s{fault.number}", 1)

        scene = Scene(self._cluster, tp, self._restart, order)
        cast = scene.cast()
        if cast is None:
            return
        script = SCRIPTS[fault.kind](scene, cast)
        self._scripts.append(script)

        condition: Condition = _at_once

        def go_on() -> None:
            nonlocal condition
            if script not in self._scripts:
                return
            while condition():
                step = next(script, None)
                if step is None:
                    self._trace.note(f"fault {fault.number} ({fault.kind.value}) is at its end")
                    self._scripts.remove(script)
                    return
                condition = step
            self._later(POLL_MS, go_on)

        go_on()
        yield
        if script in self._scripts:
            self._scripts.remove(script)
            script.close()


_IMPOSSIBLE = object()


def _at_once() -> bool:
    return True


def _runs(broker: SimulatedBroker) -> bool:
    return broker.serving and not broker.loop.paused
