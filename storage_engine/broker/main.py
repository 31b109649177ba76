"""Runs a broker process: builds and connects its parts, and runs until SIGTERM.

The order of a start is log dirs, ZooKeeper, logs, listener, registration, candidacy: no
broker or client learns of a broker before it can answer. A stop runs the other way, after the
leaders have moved (R-CTL9).
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from storage_engine.broker.cluster.cluster_id import agree_on_cluster_id
from storage_engine.broker.garbage_collection import collect_seldom
from storage_engine.broker.settings.config import BrokerConfig, by_address, log_without_effect
from storage_engine.broker.settings.topic_config import log_config_for
from storage_engine.broker.settings.zookeeper_access import zookeeper_access
from storage_engine.broker.watcher.session_watcher import SessionWatcher, log_file
from storage_engine.broker.watcher.told import WatchedBroker
from storage_engine.broker.wiring.broker_parts import BrokerParts
from storage_engine.broker.wiring.build import build
from storage_engine.broker.wiring.listeners import (
    AddressLimits,
    TlsByListener,
    load_tls,
    look_after_tls,
    served_listeners,
    tls_to_others,
)
from storage_engine.broker.wiring.parts import BrokerPorts
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ports import Endpoint, TransportError
from storage_engine.core.security.sasl_client import password_client
from storage_engine.core.settings.settings import BY_BROKER_KEY, DEATH_PROOF, NO_PROOF
from storage_engine.log.dirs.log_manager import LogManager, LogManagerSettings
from storage_engine.log.files.segment_files import descriptor_limit, pool_limit
from storage_engine.net.client_log import tell_in_time
from storage_engine.net.event_loop_ports import (
    LoopScheduler,
    SystemClock,
    ThreadBackground,
    new_event_loop,
    run_side_by_side,
)
from storage_engine.net.limits import ServerLimits, most_connections
from storage_engine.net.local_processes import LocalProcesses
from storage_engine.net.peer import PeerTransport, TcpPeerPorts
from storage_engine.net.peer_log_in import MakeSaslClient
from storage_engine.net.server import Server
from storage_engine.protocol.apis import controlled_shutdown
from storage_engine.zookeeper.access import ZooKeeperAccess
from storage_engine.zookeeper.foreign_sessions import ThreadedForeignSessions
from storage_engine.zookeeper.session import ZooKeeperSession

if TYPE_CHECKING:
    from storage_engine.broker.wiring.metrics import MetricsParts

log = logging.getLogger(__name__)

SWITCH_S = 0.0005
"""Python's switch interval: how long a computing thread, such as one that decodes a long request,
may keep the event loop from running. With Python's default of 5 ms each system call of the loop
could be delayed by as much."""

SHUTDOWN_TRIES = 3
"""Attempts at a controlled shutdown (controlled.shutdown.max.retries)."""

SHUTDOWN_RETRY_MS = 500
SHUTDOWN_TIMEOUT_MS = 12_000


def run(config: BrokerConfig) -> int:
    """Run a broker until it stops; return 0. Raises HeadraceError where it can't start."""
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(Broker(config, loop).run())
    finally:
        loop.close()


class Broker:
    """Runs one broker from its start to its stop."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._config = config
        self._loop = loop
        self._stop = asyncio.Event()
        self._failure: HeadraceError | None = None

    async def run(self) -> int:
        """Serves until a signal arrives; returns 0 after a clean stop. Raises HeadraceError when
        the broker can't start."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(signum, self._stop.set)
        log_without_effect(self._config.given, BY_BROKER_KEY, where="server.properties")
        tell_in_time(self._call_later)
        tls = load_tls(self._config)
        clock = SystemClock()
        background = ThreadBackground(self._loop)
        logs = self._logs(clock, background)
        access = zookeeper_access(self._config)
        scheduler, processes = LoopScheduler(self._loop), LocalProcesses(self._loop)
        watcher = self._watcher(processes, scheduler)
        session = self._session(clock, logs, access, watcher)
        foreign_sessions = self._foreign_sessions(access)
        transport = PeerTransport(
            self._loop, tls_to_others(self._config, tls), _log_in(self._config)
        )
        peer_ports = TcpPeerPorts(self._loop, transport)
        try:
            cluster_id = await self._start_session(session)
            logs.dirs.set_cluster_id(cluster_id)
            # A long recovery must not hold the loop, which keeps the session alive.
            await self._loop.run_in_executor(None, logs.load)
            parts = build(
                BrokerPorts(
                    config=self._config,
                    cluster_id=cluster_id,
                    logs=logs,
                    metadata_store=session,
                    transport=transport,
                    scheduler=scheduler,
                    clock=clock,
                    background=background,
                    work_ns=clock.work_ns,
                    lease_valid=lambda: clock.monotonic_ms() < session.lease_end_monotonic_ms,
                    processes=processes,
                    foreign_sessions=foreign_sessions,
                    peer_ports=peer_ports,
                )
            )
            await self._serve(parts, transport, tls, session)
        finally:
            peer_ports.close()
            transport.close()
            foreign_sessions.close()
            session.close()
            if watcher is not None:
                watcher.close()
            logs.close(run_side_by_side)
            background.close()
        if self._failure is not None:
            raise self._failure
        log.info("broker %d stopped", self._config.broker_id)
        return 0

    def _call_later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Schedule a call from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(partial(self._loop.call_later, delay_s, act))

    def _logs(self, clock: SystemClock, background: ThreadBackground) -> LogManager:
        config = self._config
        return LogManager(
            LogManagerSettings(
                log_dirs=config.log_dirs,
                broker_id=config.broker_id,
                default_config=log_config_for(config, {}),
                reserve_bytes=config.integer("log.dir.min.free.bytes"),
            ),
            clock=clock,
            background=background,
        )

    def _watcher(
        self, processes: LocalProcesses, scheduler: LoopScheduler
    ) -> SessionWatcher | None:
        config = self._config
        if config.text(DEATH_PROOF) == NO_PROOF:
            return None
        broker = WatchedBroker(
            broker_id=config.broker_id,
            pid=os.getpid(),
            connect=config.zookeeper_connect,
            session_timeout_ms=config.integer("zookeeper.session.timeout.ms"),
            log_file=log_file(),
            tls=config.zookeeper_tls,
        )
        watcher = SessionWatcher(broker, processes, scheduler)
        watcher.start()
        return watcher

    def _session(
        self,
        clock: SystemClock,
        logs: LogManager,
        access: ZooKeeperAccess,
        watcher: SessionWatcher | None,
    ) -> ZooKeeperSession:
        config = self._config
        return ZooKeeperSession(
            config.zookeeper_connect,
            config.integer("zookeeper.session.timeout.ms"),
            self._loop.call_soon_threadsafe,
            clock=clock,
            data_dir=logs.dirs.working_paths[0],
            access=access,
            on_session=None if watcher is None else watcher.session_is,
        )

    def _foreign_sessions(self, access: ZooKeeperAccess) -> ThreadedForeignSessions:
        config = self._config
        return ThreadedForeignSessions(
            config.zookeeper_connect,
            config.integer("zookeeper.session.timeout.ms"),
            self._loop.call_soon_threadsafe,
            access=access,
        )

    async def _start_session(self, session: ZooKeeperSession) -> str:
        """Connect to ZooKeeper; return the cluster's id."""
        await self._loop.run_in_executor(
            None, session.start, self._config.zookeeper_connection_timeout_ms
        )
        known: asyncio.Future[str] = self._loop.create_future()
        agree_on_cluster_id(session, on_known=known.set_result, on_failed=known.set_exception)
        return await known

    async def _serve(
        self,
        parts: BrokerParts,
        transport: PeerTransport,
        tls: TlsByListener,
        session: ZooKeeperSession,
    ) -> None:
        """Listen, join the cluster, and stop in order after a signal or a refusal."""
        await self._until(parts.when_access_is_known)
        await self._until(partial(parts.cluster.features.when_known, on_refused=self._on_refused))
        if self._failure is not None:
            parts.close()
            return
        server = Server(self._loop, served_listeners(parts, tls), _limits(self._config))
        metrics = self._metrics(parts, server, tls, session)
        await server.start()
        collect_seldom()
        sys.setswitchinterval(SWITCH_S)
        try:
            look_after_tls(parts, tls)
            AddressLimits(server, parts.settings.config, parts.ports.background).start()
            if metrics is not None:
                await metrics.start()
                where = f"{metrics.listener.host}:{metrics.listener.port}"
                log.info("broker %d serves metrics at %s", self._config.broker_id, where)
            parts.join_cluster(self._on_refused)
            for listener in self._config.listeners.listening:
                where = f"{listener.host or '*'}:{server.ports[listener.name]}"
                log.info("broker %d serves %s", self._config.broker_id, where)
            await self._stop.wait()
            if self._failure is None:
                await self._controlled_shutdown(parts, transport)
        finally:
            if metrics is not None:
                metrics.close()
            parts.close()
            await server.close()

    def _metrics(
        self, parts: BrokerParts, server: Server, tls: TlsByListener, session: ZooKeeperSession
    ) -> "MetricsParts | None":
        if self._config.metrics is None:
            return None
        # The code for metrics and its libraries are loaded only where metrics are configured.
        from storage_engine.broker.wiring.metrics import build_metrics

        return build_metrics(parts, server, tls, session, self._config.metrics)

    async def _until(self, when_known: Callable[[Callable[[], None]], None]) -> None:
        """Wait for what must be known before the first client, or for the signal to stop. An
        earlier one would be refused for good what it may do, and told levels of features that the
        cluster does not use."""
        known = asyncio.Event()
        when_known(known.set)
        if known.is_set():
            return
        waits = [self._loop.create_task(each.wait()) for each in (known, self._stop)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _on_refused(self, failure: HeadraceError) -> None:
        self._failure = failure
        self._stop.set()

    async def _controlled_shutdown(self, parts: BrokerParts, transport: PeerTransport) -> None:
        """Ask the controller to move this broker's leaders; after a few attempts the broker stops
        without it."""
        if not self._config.flag("controlled.shutdown.enable"):
            return
        parts.cluster.registration.leave()
        metadata = parts.cluster.metadata
        for _ in range(SHUTDOWN_TRIES):
            controller = metadata.brokers.get(metadata.controller_id)
            if controller is not None:
                reply = await self._ask(
                    transport,
                    Endpoint(
                        broker_id=controller.broker_id, host=controller.host, port=controller.port
                    ),
                    parts,
                )
                if not isinstance(reply, TransportError) and not reply.error_code:
                    if reply.remaining_partitions:
                        log.warning(
                            "stopping though no other in-sync replica can lead %s",
                            ", ".join(map(str, reply.remaining_partitions)),
                        )
                    return
                log.warning("controlled shutdown refused: %s", reply)
            await asyncio.sleep(SHUTDOWN_RETRY_MS / 1000)
        log.warning("stopping without a controlled shutdown: the controller did not accept it")

    async def _ask(
        self, transport: PeerTransport, controller: Endpoint, parts: BrokerParts
    ) -> "controlled_shutdown.ControlledShutdownResponse | TransportError":
        answered: asyncio.Future[
            controlled_shutdown.ControlledShutdownResponse | TransportError
        ] = self._loop.create_future()
        transport.request(
            controller,
            "shutdown",
            controlled_shutdown.API,
            0,
            controlled_shutdown.ControlledShutdownRequest(
                broker_id=parts.ports.broker_id,
                broker_epoch=parts.cluster.registration.broker_epoch,
            ),
            timeout_ms=SHUTDOWN_TIMEOUT_MS,
            on_reply=answered.set_result,
        )
        return await answered


def _log_in(config: BrokerConfig) -> MakeSaslClient | None:
    """Makes SASL clients for connections to other brokers; None where these don't log in."""
    own = config.sasl.inter_broker
    if own is None:
        return None
    return lambda: password_client(own.mechanism, own.username, own.password.reveal())


def _max_connections(config: BrokerConfig) -> int:
    """`max.connections`; by default as many as the limit of open files allows beside the logs."""
    limit = descriptor_limit()
    room = most_connections(limit, pool_limit(limit))
    wanted = config.optional_integer("max.connections")
    if wanted is None:
        log.info("max.connections=%d, the process may have %d files open", room, limit)
        return room
    if wanted > room:
        log.warning(
            "max.connections=%d is more than %d open files allow beside the logs (%d): raise that"
            " limit (ulimit -n), or lower max.connections",
            wanted, limit, room,
        )  # fmt: skip
    return wanted


def _limits(config: BrokerConfig) -> ServerLimits:
    return ServerLimits(
        request_max_bytes=config.integer("socket.request.max.bytes"),
        queued_max_requests=config.integer("queued.max.requests"),
        max_connections=_max_connections(config),
        max_connections_per_ip=config.integer("max.connections.per.ip"),
        per_ip_overrides=by_address(config.per_ip_overrides),
        receiving_max_bytes=config.integer("queued.max.request.bytes"),
        idle_max_ms=config.integer("connections.max.idle.ms"),
        send_buffer_bytes=config.integer("socket.send.buffer.bytes"),
        receive_buffer_bytes=config.integer("socket.receive.buffer.bytes"),
    )
