"""Simulated machines, the processes on them, and what a broker learns of the processes, ports and
sessions of others.

Fault model: each machine numbers its processes from 1 on, so that numbers of different machines
mean different processes, and a number is used again after a restart. The end of a process is
noticed on its machine after a small delay. A machine that loses its power notices nothing more, and
has another boot id when it is back. A machine may be cut off from ZooKeeper with all its processes.
"""

from collections.abc import Callable

from simulation.world.clock import ProcessLoop
from simulation.world.network import SimulatedNetwork, endpoint_of
from simulation.world.zookeeper import SimulatedZooKeeper
from storage_engine.core.ports import Endpoint, PortAnswer, ProcessIdentity

NOTICED_MS = 1


class SimulatedMachine:
    """The processes of one machine since it was started."""

    def __init__(self, boot_id: str, *, has_watchers: bool = True) -> None:
        """`has_watchers`: whether brokers have watchers beside them."""
        self.boot_id = boot_id
        self.has_watchers = has_watchers
        self.running: dict[int, SimulatedProcess] = {}
        self.noticed_ms: Callable[[], int] = lambda: NOTICED_MS
        """The delay of the notice that a process has ended."""
        self.watcher_ms: Callable[[], int] = lambda: NOTICED_MS
        """The delay until a watcher acts on the end of its broker."""
        self.attempt_fails: Callable[[], bool] = lambda: False
        """Whether an attempt of a watcher to close a session fails."""
        self.is_dark = False
        """Whether it has lost its power: nothing runs on it any more."""
        self.cuts = 0
        """The number of faults that cut it off from ZooKeeper."""

    @property
    def reaches_zookeeper(self) -> bool:
        return not self.cuts

    def after_power_loss(self) -> "SimulatedMachine":
        """Return the same machine once it is started again."""
        machine = SimulatedMachine(f"{self.boot_id}-0", has_watchers=self.has_watchers)
        machine.noticed_ms = self.noticed_ms
        machine.watcher_ms = self.watcher_ms
        machine.attempt_fails = self.attempt_fails
        machine.cuts = self.cuts
        return machine

    def begin(self, started_ms: int) -> "SimulatedProcess":
        """Start a process, under the lowest number that is free."""
        pid = next(number for number in range(1, 100) if number not in self.running)
        process = self.running[pid] = SimulatedProcess(self, pid, started_ms)
        return process


class SimulatedProcess:
    """A process, while it runs and afterwards."""

    def __init__(self, machine: SimulatedMachine, pid: int, started_ms: int) -> None:
        self.machine = machine
        self.identity = ProcessIdentity(
            boot_id=machine.boot_id,
            pid_namespace=1,
            time_namespace=1,
            pid=pid,
            start_ticks=started_ms,
        )
        self.watchers: list[Callable[[], None]] = []

    def end(self) -> None:
        """End the process; its watchers are notified, each after a delay."""
        self.machine.running.pop(self.identity.pid, None)
        watchers, self.watchers = self.watchers, []
        for notice in watchers:
            notice()


class SimulatedProcesses:
    """Implements `core.ports.Processes` for one life of a broker."""

    def __init__(self, process: SimulatedProcess, loop: ProcessLoop) -> None:
        self._process = process
        self._loop = loop

    @property
    def own(self) -> ProcessIdentity:
        return self._process.identity

    def open(self, pid: int) -> "WatchedProcess | None":
        found = self._process.machine.running.get(pid)
        return None if found is None else WatchedProcess(found, self._loop)


class WatchedProcess:
    """Implements `core.ports.OpenProcess`."""

    def __init__(self, process: SimulatedProcess, loop: ProcessLoop) -> None:
        self._process = process
        self._loop = loop
        self._closed = False

    @property
    def start_ticks(self) -> int:
        return self._process.identity.start_ticks

    def when_ended(self, callback: Callable[[], None]) -> None:
        machine = self._process.machine

        def ended() -> None:
            if not self._closed:
                callback()

        self._process.watchers.append(lambda: self._loop.deliver_later(machine.noticed_ms(), ended))

    def close(self) -> None:
        self._closed = True


class SimulatedForeignSessions:
    """Implements `core.ports.ForeignSessions` for one life of a broker. Each session is ended over
    a connection of its own."""

    def __init__(self, server: SimulatedZooKeeper, loop: ProcessLoop) -> None:
        self._server = server
        self._loop = loop
        self.is_cut_off: Callable[[], bool] = lambda: False
        """Whether this broker can't reach ZooKeeper."""

    def end(self, session_id: int, password: bytes, on_done: Callable[[bool], None]) -> None:
        server = self._server

        def arrive() -> None:
            if self.is_cut_off() or password != server.password_of(session_id):
                self._loop.enter(lambda: on_done(False))
                return
            server.close_session(session_id)
            self._loop.deliver_later(server.delay_ms(), lambda: on_done(True))

        # To connect takes a round trip before; once sent, it arrives though the sender is gone.
        server.loop.call_later(server.delay_ms() + server.delay_ms() + server.delay_ms(), arrive)


class SimulatedPeerPorts:
    """Implements `core.ports.PeerPorts` for one life of a broker: reports of others' ports."""

    def __init__(self, network: SimulatedNetwork, sender: int, owner: ProcessLoop) -> None:
        self._network = network
        self._sender = sender
        self._owner = owner

    def on_closed(self, listener: Callable[[Endpoint], None]) -> None:
        self._network.on_closed[self._sender] = lambda receiver: listener(endpoint_of(receiver))

    def probe(self, endpoint: Endpoint, on_done: Callable[[PortAnswer], None]) -> None:
        network = self._network

        def arrive() -> None:
            answer = network.answer_of(self._sender, endpoint.broker_id)
            self._owner.deliver_later(network.delay_ms(), lambda: on_done(answer))

        network.loop.call_later(network.delay_ms(), arrive)
