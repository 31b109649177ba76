"""A real broker (wiring, handlers, codecs, logs) over simulated ports.

Each life of the process has a loop, a session and connections of its own; only the disk outlives
it.
"""

from functools import partial
from pathlib import Path

from simulation.world.clock import ProcessLoop
from simulation.world.disk import SimulatedDisk
from simulation.world.network import (
    BASE_PORT,
    SimulatedConnection,
    SimulatedNetwork,
    SimulatedTransport,
)
from simulation.world.processes import (
    SimulatedForeignSessions,
    SimulatedMachine,
    SimulatedPeerPorts,
    SimulatedProcess,
    SimulatedProcesses,
)
from simulation.world.watchers import RESTART_MS, SimulatedWatcher
from simulation.world.zookeeper import SimulatedZooKeeper
from simulation.world.zookeeper_session import SimulatedSession
from storage_engine.broker.cluster.cluster_id import agree_on_cluster_id
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.topic_config import log_config_for
from storage_engine.broker.wiring.build import BrokerParts, build
from storage_engine.broker.wiring.parts import BrokerPorts
from storage_engine.core.ids import BrokerEpoch
from storage_engine.core.ports import SessionState
from storage_engine.core.settings.settings import DEATH_PROOF, NO_PROOF
from storage_engine.log.dirs.log_manager import LogManager, LogManagerSettings
from storage_engine.log.files.disk import REAL_DISK, Disk

SESSION_TIMEOUT_MS = 6000
"""The default of a cluster's settings."""

SETTINGS = {
    "zookeeper.connect": "simulated:2181",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "leader.imbalance.check.interval.seconds": "5",
    # Where it is about something else, dead brokers are waited for.
    DEATH_PROOF: NO_PROOF,
}


class SimulatedBroker:
    """`start`, `stop`, `kill`, `pause` and `resume` may be called any number of times."""

    def __init__(
        self,
        broker_id: int,
        folder: Path,
        network: SimulatedNetwork,
        zookeeper: SimulatedZooKeeper,
        settings: dict[str, str],
    ) -> None:
        self.id = broker_id
        self.folder = folder
        self.disk: Disk = REAL_DISK
        self.network = network
        self.zookeeper = zookeeper
        self.machine = SimulatedMachine(f"{broker_id:x}")
        """The broker's machine, its own unless several get the same one before they start."""
        self._given = {
            **SETTINGS,
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://simulated:{BASE_PORT + broker_id}",
            **settings,
        }
        self.use_log_dirs([folder])
        self.up = False
        self.life = 0
        self.refused: list[Exception] = []
        """The errors with which the broker would have ended itself."""
        self.loop: ProcessLoop
        self.process: SimulatedProcess
        self.session: SimulatedSession
        self.watcher: SimulatedWatcher | None = None
        """None where broker.death.proof is none, or its machine has no watchers."""
        self._watcher_started_ms = 0
        self.foreign_sessions: SimulatedForeignSessions
        self.transport: SimulatedTransport
        self.logs: LogManager
        self.parts: BrokerParts

    def use_log_dirs(self, paths: list[Path]) -> None:
        """Set log.dirs."""
        self.config = BrokerConfig.from_mapping(
            {**self._given, "log.dirs": ",".join(map(str, paths))}
        )

    @property
    def replicas(self) -> ReplicaManager:
        return self.parts.replicas.manager

    @property
    def metadata(self) -> MetadataCache:
        return self.parts.cluster.metadata

    @property
    def broker_epoch(self) -> BrokerEpoch:
        return self.parts.cluster.registration.broker_epoch

    def start(self) -> None:
        """Start the process; returns once it serves."""
        self.begin()
        self.network.loop.run_until(lambda: self.serving)

    def begin(self) -> None:
        """Start the process; it serves and joins the cluster as soon as it knows the cluster's id,
        its access rules and its features."""
        self.life += 1
        loop = self.loop = ProcessLoop(self.network.loop)
        self.process = self.machine.begin(self.network.loop.now_ms)
        self.session = session = SimulatedSession(
            self.zookeeper, loop, timeout_ms=self.config.integer("zookeeper.session.timeout.ms")
        )
        machine = self.machine
        session.can_connect = lambda: machine.reaches_zookeeper
        if machine.has_watchers and self.config.text(DEATH_PROOF) != NO_PROOF:
            self._start_watcher()
            session.add_state_listener(self._tell_watcher)
        self.foreign_sessions = SimulatedForeignSessions(self.zookeeper, loop)
        self.foreign_sessions.is_cut_off = lambda: session.state is SessionState.SUSPENDED
        self.transport = SimulatedTransport(self.network, self.id, loop)
        if isinstance(self.disk, SimulatedDisk):
            self.disk.wall_ms = loop.wall_ms
        self.logs = LogManager(
            LogManagerSettings(
                log_dirs=self.config.log_dirs,
                broker_id=self.id,
                default_config=log_config_for(self.config, {}),
                reserve_bytes=self.config.integer("log.dir.min.free.bytes"),
            ),
            clock=loop,
            background=loop,
            disk=self.disk,
        )
        self.up = True

        def on_known(cluster_id: str) -> None:
            if self.loop is loop:
                self._build(cluster_id)
                parts = self.parts
                features = partial(parts.cluster.features.when_known, join, self.refused.append)
                parts.when_access_is_known(features)

        def join() -> None:
            if self.loop is loop:
                self._joined = True
                self.parts.join_cluster(self.refused.append)

        self._joined = False
        agree_on_cluster_id(self.session, on_known=on_known, on_failed=self.refused.append)

    def _start_watcher(self) -> None:
        self._watcher_started_ms = self.network.loop.now_ms
        self.watcher = SimulatedWatcher(
            self.zookeeper, self.process, self.id, session_timeout_ms=self.session.timeout_ms
        )
        self._tell_watcher(self.session.state)

    def _tell_watcher(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self.watcher is not None:
            self.watcher.told(self.session.session_id)

    def kill_watcher(self) -> None:
        """Kill the watcher alone; the broker notices, and starts another."""
        if self.watcher is not None and self.watcher.lives:
            self.watcher.die()
            again_ms = self._watcher_started_ms + RESTART_MS - self.network.loop.now_ms
            self.loop.call_later(max(1, again_ms), self._start_watcher)

    def _build(self, cluster_id: str) -> None:
        session = self.session
        self.logs.load(cluster_id)
        self.parts = build(
            BrokerPorts(
                config=self.config,
                cluster_id=cluster_id,
                logs=self.logs,
                metadata_store=session,
                transport=self.transport,
                scheduler=self.loop,
                clock=self.loop,
                background=self.loop,
                work_ns=self.loop.work_ns,
                lease_valid=lambda: session.lease_valid,
                processes=SimulatedProcesses(self.process, self.loop),
                foreign_sessions=self.foreign_sessions,
                peer_ports=SimulatedPeerPorts(self.network, self.id, self.loop),
            )
        )

    @property
    def serving(self) -> bool:
        """Whether the process runs and listens."""
        return self.up and self._joined

    def receive(self, connection: SimulatedConnection, frame: memoryview) -> None:
        if self._joined:
            self.parts.dispatcher(connection, frame)  # type: ignore[arg-type]
        else:
            connection.cut(f"broker {self.id} does not listen yet")

    def stop(self) -> None:
        """Stop in order, but without a controlled shutdown."""
        self.parts.close()
        self.session.close()
        if self.watcher is not None:
            self.watcher.told(0)
        self.loop.kill()
        self.logs.close()
        self._gone()

    def lose_machine(self, after: SimulatedMachine | None = None) -> None:
        """Kill the broker with its machine: no process is left there that could notice. `after`:
        the machine when it is started again; None: one for this broker alone."""
        self.process.watchers.clear()
        self.kill()
        self.machine = after or self.machine.after_power_loss()

    def kill_unit(self) -> None:
        """Kill the broker and its watcher at one moment."""
        if self.watcher is not None:
            self.watcher.die()
        self.kill()

    def kill(self, *, session_ends_at_once: bool = False) -> None:
        """SIGKILL. A broker that is restarted at once ends its predecessor's session itself."""
        self.loop.kill()
        if session_ends_at_once:
            self.session.close()
        else:
            self.session.die()
        self.logs.abandon()
        self._gone()

    def pause(self) -> None:
        """SIGSTOP."""
        self.loop.pause()
        self.session.pause()

    def resume(self) -> None:
        """SIGCONT: the clock has jumped, and all that came meanwhile is there at once."""
        self.loop.resume()
        self.session.resume()

    def _gone(self) -> None:
        self.up = False
        self.process.end()
        self.network.gone(self.id)
