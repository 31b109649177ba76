"""A cluster in a directory of this machine: starts, stops and finds ZooKeeper and brokers, which
are child processes.

The directory holds all state (`cluster.json`, `broker-<id>/`, `zookeeper/`), so that any process
may continue where another stopped; a process that changes it holds the directory's lock. `headrace
up`, `stop-broker`, `start-broker` and `down` call this class; tests and examples use it as a
library:

    with LocalCluster.running(folder, UpRequest(brokers=3, port=0)) as cluster:
        use(cluster.bootstrap_servers)
        cluster.kill_broker(2)
        cluster.start_broker(2)
"""

import contextlib
import socket
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from storage_engine.core.settings.settings import METRICS_LISTENER
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local import cluster_file
from storage_engine.tools.local.broker_process import BrokerProcess, StopOutcome
from storage_engine.tools.local.broker_settings import (
    check_cluster_settings,
    check_settings,
    merge_settings,
    read_settings,
    write_settings,
)
from storage_engine.tools.local.cluster_file import BrokerEntry, ClusterFile
from storage_engine.tools.local.cluster_guard import taken_down_with_us
from storage_engine.tools.local.cluster_plan import (
    HOST,
    UpRequest,
    parse_zookeeper_hosts,
    plan_cluster,
    port_in_use,
)
from storage_engine.tools.local.cluster_recovery import recover_cluster
from storage_engine.tools.local.cluster_web import ClusterWeb
from storage_engine.tools.local.directory_lock import directory_lock
from storage_engine.tools.local.free_ports import is_port_free
from storage_engine.tools.local.metrics_ports import metrics_port_is_free, with_metrics
from storage_engine.tools.local.processes import exit_status
from storage_engine.tools.local.serving import wait_until_serving
from storage_engine.tools.local.signals import signals_held
from storage_engine.zookeeper.embedded import EmbeddedZooKeeper, attach_embedded, start_embedded
from storage_engine.zookeeper.server.program import ZooKeeperServerError

if TYPE_CHECKING:
    from storage_engine.tools.local.secured import SecuredCluster

START_TIMEOUT_S = 60.0
"""All brokers must answer within this time after the start of their processes, or after the last
progress of a recovery."""
STOP_TIMEOUT_S = 30.0
"""The time for the controlled shutdown of all brokers together; processes that still run then are
killed."""

_FAILED_START_STOP_S = 10.0
"""The time for stopping brokers whose start has failed: they lead no partitions to hand over."""
_MIN_STOP_TIMEOUT_S = 1.0
"""Each broker gets at least this time, even when the others have used up the total."""
_PORT_ATTEMPTS = 3
"""Free ports may be taken by somebody else before our brokers bind them."""
_ZOOKEEPER_CONNECT_TIMEOUT_S = 3.0

Progress = Callable[[str], None]


class PortTakenError(CommandError):
    """Another program took the port after it was found free."""


class LocalCluster:
    """The cluster of one folder.

    Every method reads the folder afresh and leaves `cluster.json` true.
    """

    def __init__(self, directory: Path, *, progress: Progress = lambda line: None) -> None:
        self.directory = directory.resolve()
        self._progress = progress

    @classmethod
    @contextlib.contextmanager
    def running(
        cls,
        directory: Path,
        request: UpRequest | None = None,
        *,
        timeout_s: float = START_TIMEOUT_S,
        progress: Progress = lambda line: None,
    ) -> Iterator["LocalCluster"]:
        """A cluster that is up within the block and down after it, even if we are killed in it."""
        cluster = cls(directory, progress=progress)
        with taken_down_with_us(cluster.directory):
            cluster.up(request, timeout_s=timeout_s)
            try:
                yield cluster
            finally:
                cluster._down_for_certain()

    def _down_for_certain(self) -> None:
        """Interrupted once more, it stops at once and lets nothing come between."""
        try:
            self.down()
        except KeyboardInterrupt:
            with signals_held():
                self.down(timeout_s=0)
            raise

    @property
    def state(self) -> ClusterFile:
        """The content of `cluster.json`, with the pids of the processes that really run."""
        return self._true(cluster_file.read(self.directory))

    @property
    def bootstrap_servers(self) -> str:
        return cluster_file.read(self.directory).bootstrap_servers

    def admin_config(self, state: ClusterFile) -> Path | None:
        """The settings by which commands connect to it; None for a cluster that is open."""
        return None if state.security is None else self.directory / state.security.admin

    def up(self, request: UpRequest | None = None, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start what does not run yet and wait until all of it serves.

        What it started it stops when that fails.
        """
        request = request or UpRequest()
        check_cluster_settings(request.settings)
        self._make_directory(is_secret=request.is_secure)
        with directory_lock(self.directory):
            for attempt in range(1, _PORT_ATTEMPTS + 1):
                try:
                    self._up(request, timeout_s)
                    return
                except PortTakenError:
                    if request.port != 0 or attempt == _PORT_ATTEMPTS:
                        raise

    def start_broker(self, broker_id: int, *, timeout_s: float = START_TIMEOUT_S) -> bool:
        """Start one broker on its data and port and wait until it serves; False when it ran
        already.
        """
        cluster_file.read(self.directory).broker(broker_id)
        with directory_lock(self.directory):
            state = self.state
            entry = state.broker(broker_id)
            if entry.pid is not None:
                cluster_file.write(self.directory, state)
                return False
            if not is_port_free(entry.host, entry.port):
                raise port_in_use(entry)
            others = {each.id for each in state.brokers} - {broker_id}
            state = self._with_metrics(state, (), running=others, any_port=True)
            self._prepare_security(state)
            state = self._start_zookeeper(state)
            self._write_settings(state, (), brokers_before=len(state.brokers), only=broker_id)
            self._start_and_wait(state, [broker_id], timeout_s)
            return True

    def stop_broker(self, broker_id: int, *, timeout_s: float = STOP_TIMEOUT_S) -> StopOutcome:
        """Controlled shutdown of one broker, SIGKILL after `timeout_s`."""
        cluster_file.read(self.directory).broker(broker_id)
        with directory_lock(self.directory):
            state = self.state
            outcome = self._process(state.broker(broker_id)).stop(timeout_s=timeout_s)
            cluster_file.write(self.directory, state.with_pid(broker_id, None))
            return outcome

    def kill_broker(self, broker_id: int) -> None:
        """SIGKILL, as from outside: `cluster.json` keeps the pid of the dead."""
        self._process(cluster_file.read(self.directory).broker(broker_id)).kill()

    def open_console(self) -> str:
        """Start its console unless it runs; its address. CommandError when it does not start."""
        console = self._with_web(self._web.with_console).console
        assert console is not None
        return console.url

    def open_registry(self) -> str:
        """Start its schema registry unless it runs; its address. A console that runs is started
        anew where it would not know it. CommandError when one does not start."""
        console = self.state.console
        state = self._with_web(self._web.with_registry)
        assert state.registry is not None
        if console is not None and console.pid is not None and state.console != console:
            self._with_web(self._web.with_console)
        return state.registry.url

    def open_lake(self, root: str | None) -> str:
        """Start its lake unless it runs, with this root (None: the one that it had); the root.
        CommandError when it does not start."""
        lake = self._with_web(partial(self._web.with_lake, root=root)).lake
        assert lake is not None
        return lake.root

    def _with_web(self, start: Callable[[ClusterFile], ClusterFile]) -> ClusterFile:
        cluster_file.read(self.directory)
        with directory_lock(self.directory):
            state = start(self.state)
            cluster_file.write(self.directory, state)
            return state

    def down(self, *, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Stop the brokers one after the other, then ZooKeeper; False when nothing ran."""
        cluster_file.read(self.directory)
        with directory_lock(self.directory):
            # First, as they would only report brokers that go. It is written down with the first
            # broker that stops, or at the end.
            state = self._web.stopped(self.state, self._progress)
            ran = [entry.id for entry in state.brokers if entry.pid is not None]
            if state.zookeeper_pid is None and not ran:
                cluster_file.write(self.directory, state)
                return False
            self._stop(state, ran, timeout_s=timeout_s, and_zookeeper=True)
            return True

    def note_ended(self) -> list[str]:
        """A line for each process that has ended since `cluster.json` was written, with what to do.

        The file is made true.
        """
        with directory_lock(self.directory):
            recorded = cluster_file.read(self.directory)
            state = self._true(recorded)
            lines = [
                f"broker {before.id} {self._how_it_ended(before)}; start it again with: "
                f"headrace start-broker --dir {self.directory} {before.id}"
                for before, now in zip(recorded.brokers, state.brokers, strict=True)
                if before.pid is not None and now.pid is None
            ]
            if recorded.zookeeper_pid is not None and state.zookeeper_pid is None:
                lines.append(
                    "ZooKeeper ended; start it again with: "
                    f"headrace up --dir {self.directory} --detach"
                )
            if state != recorded:
                cluster_file.write(self.directory, state)
            return lines

    # --- below: the folder is locked

    def _up(self, request: UpRequest, timeout_s: float) -> None:
        existing = self._existing()
        running = {entry.id for entry in existing.brokers if entry.pid} if existing else set()
        state = plan_cluster(
            existing,
            request,
            directory=self.directory,
            running=running,
            zookeeper_runs=existing is not None and existing.zookeeper_pid is not None,
        )
        state = self._with_metrics(
            state, request.settings, running=running, any_port=request.port == 0
        )
        if state.zookeeper_dir is None:
            _check_zookeeper(state.zookeeper)
        brokers_before = len(existing.brokers) if existing else 0
        self._prepare_security(state)
        self._write_settings(state, request.settings, brokers_before=brokers_before)
        cluster_file.write(self.directory, state)
        started_zookeeper = state.zookeeper_pid is None
        to_start = [entry.id for entry in state.brokers if entry.id not in running]
        if running and request.settings:
            ids = ", ".join(map(str, sorted(running)))
            self._progress(f"broker {ids} runs already and takes --set when it starts again")
        try:
            state = self._start_zookeeper(state)
            if state.security is not None:
                self._secured.write_users(state)
            self._start_and_wait(state, to_start, timeout_s)
        except BaseException:
            # Also for Ctrl-C: what this call started must not stay behind.
            self._stop(
                self.state,
                to_start,
                timeout_s=_FAILED_START_STOP_S,
                and_zookeeper=started_zookeeper,
            )
            raise

    def _with_metrics(
        self,
        state: ClusterFile,
        overrides: tuple[tuple[str, str], ...],
        *,
        running: Collection[int],
        any_port: bool,
    ) -> ClusterFile:
        given = {
            entry.id: {**read_settings(self.directory / entry.config), **dict(overrides)}.get(
                METRICS_LISTENER
            )
            for entry in state.brokers
        }
        taken = (
            () if state.zookeeper_dir is None else [parse_zookeeper_hosts(state.zookeeper)[0][1]]
        )
        brokers = with_metrics(
            state.brokers, given, running=running, any_port=any_port, taken=taken
        )
        return replace(state, brokers=brokers)

    @property
    def _web(self) -> ClusterWeb:
        return ClusterWeb(self.directory)

    def _existing(self) -> ClusterFile | None:
        """The cluster of the folder; None when there is none yet."""
        if cluster_file.exists(self.directory):
            return self.state
        found = recover_cluster(self.directory)
        return None if found is None else self._true(found)

    def _true(self, recorded: ClusterFile) -> ClusterFile:
        """Return the cluster with the pids of the processes that really run."""
        server = self._zookeeper(recorded)
        return replace(
            self._web.found(recorded),
            zookeeper_pid=None if server is None else server.pid,
            brokers=tuple(
                replace(entry, pid=self._process(entry).find()) for entry in recorded.brokers
            ),
        )

    def _prepare_security(self, state: ClusterFile) -> None:
        if state.security is not None:
            self._secured.prepare(state.brokers)

    def _start_zookeeper(self, state: ClusterFile) -> ClusterFile:
        """Start the embedded ZooKeeper unless it runs or is somebody else's."""
        if state.zookeeper_dir is None or state.zookeeper_pid is not None:
            return state
        (_, port), *_ = parse_zookeeper_hosts(state.zookeeper)
        tls = None if state.security is None else self._secured.zookeeper_tls
        try:
            server = start_embedded(self.directory / state.zookeeper_dir, port=port, tls=tls)
        except ZooKeeperServerError as error:
            if is_port_free(HOST, port):
                raise
            raise PortTakenError(str(error)) from None
        self._progress(f"ZooKeeper serves on {server.connect}")
        state = replace(state, zookeeper=server.connect, zookeeper_pid=server.pid)
        cluster_file.write(self.directory, state)
        return state

    def _start_and_wait(self, state: ClusterFile, broker_ids: list[int], timeout_s: float) -> None:
        for broker_id in broker_ids:
            pid = self._process(state.broker(broker_id)).start()
            state = state.with_pid(broker_id, pid)
            cluster_file.write(self.directory, state)
            self._progress(f"broker {broker_id} starts (pid {pid})")
        started = [state.broker(broker_id) for broker_id in broker_ids]
        try:
            wait_until_serving(
                started,
                expected=[entry.id for entry in state.brokers if entry.pid is not None],
                timeout_s=timeout_s,
                check_alive=lambda: self._check_alive(started),
                progress=self._progress,
                config=self.admin_config(state),
                recovery_of=lambda entry: self._process(entry).recovery_line(),
            )
        except CommandError:
            cluster_file.write(self.directory, self.state)
            raise

    def _check_alive(self, entries: list[BrokerEntry]) -> None:
        for entry in entries:
            assert entry.pid is not None
            status = exit_status(entry.pid)
            if status is None:
                continue
            if not is_port_free(entry.host, entry.port) or not metrics_port_is_free(entry):
                raise PortTakenError(str(port_in_use(entry)))
            raise CommandError(
                f"broker {entry.id} ended while it started ({_exit_text(status)}): "
                f"{self._process(entry).last_words()}"
            )

    def _stop(
        self, state: ClusterFile, broker_ids: list[int], *, timeout_s: float, and_zookeeper: bool
    ) -> None:
        """Stops brokers one after the other, because each hands its partitions to those that still
        run. What goes wrong with one, or with the disk, is raised when all others are stopped."""
        deadline = time.monotonic() + timeout_s
        failures: list[OSError] = []
        for broker_id in broker_ids:
            left_s = max(_MIN_STOP_TIMEOUT_S, deadline - time.monotonic())
            try:
                outcome = self._process(state.broker(broker_id)).stop(timeout_s=left_s)
                self._progress(f"broker {broker_id} {outcome.value}")
                state = state.with_pid(broker_id, None)
                cluster_file.write(self.directory, state)
            except OSError as error:
                failures.append(error)
        if and_zookeeper:
            server = self._zookeeper(state)
            if server is not None:
                server.stop()
                self._progress("ZooKeeper stopped")
            state = replace(state, zookeeper_pid=None)
        if failures:
            # Else a full disk is told as it was met first.
            with contextlib.suppress(OSError):
                cluster_file.write(self.directory, state)
            raise failures[0]
        cluster_file.write(self.directory, state)

    def _write_settings(
        self,
        state: ClusterFile,
        overrides: tuple[tuple[str, str], ...],
        *,
        brokers_before: int,
        only: int | None = None,
    ) -> None:
        protocol, secured = "PLAINTEXT", {}
        if state.security is not None:
            protocol = state.security.protocol
            secured = self._secured.broker_settings(
                state.brokers, has_own_zookeeper=state.zookeeper_dir is not None
            )
        for entry in state.brokers:
            if only is not None and entry.id != only:
                continue
            path = self.directory / entry.config
            settings = merge_settings(
                {**secured.get(entry.id, {}), **read_settings(path)},
                decided={
                    "broker.id": str(entry.id),
                    "listeners": f"{protocol}://{entry.address}",
                    "log.dirs": str(self.directory / entry.data_dir),
                    "zookeeper.connect": state.zookeeper,
                    **({} if entry.metrics is None else {METRICS_LISTENER: entry.metrics}),
                },
                overrides=overrides,
                brokers_before=brokers_before,
                brokers_now=len(state.brokers),
            )
            check_settings(path, settings)
            write_settings(path, settings)
        if state.security is not None:
            self._secured.write_client_files(state.bootstrap_servers)

    @property
    def _secured(self) -> "SecuredCluster":
        # What it takes to make certificates and users takes as long to import as all else here.
        from storage_engine.tools.local.secured import SecuredCluster

        return SecuredCluster(self.directory)

    def _make_directory(self, *, is_secret: bool) -> None:
        if "," in str(self.directory):
            raise CommandError(
                f"the path '{self.directory}' has a comma, which separates folders in log.dirs; "
                "give another --dir"
            )
        try:
            mode = 0o700 if is_secret else 0o777
            self.directory.mkdir(parents=True, exist_ok=True, mode=mode)
        except (FileExistsError, NotADirectoryError):
            raise CommandError(f"'{self.directory}' is not a folder; give another --dir") from None

    def _how_it_ended(self, entry: BrokerEntry) -> str:
        status = exit_status(entry.pid) if entry.pid is not None else None
        return "ended" if status is None else f"ended ({_exit_text(status)})"

    def _process(self, entry: BrokerEntry) -> BrokerProcess:
        return BrokerProcess(self.directory, entry)

    def _zookeeper(self, state: ClusterFile) -> EmbeddedZooKeeper | None:
        if state.zookeeper_dir is None:
            return None
        return attach_embedded(self.directory / state.zookeeper_dir)


def _exit_text(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def _check_zookeeper(hosts: str) -> None:
    """CommandError when none of the hosts of a given ZooKeeper takes a connection."""
    reasons = []
    for host, port in parse_zookeeper_hosts(hosts):
        try:
            socket.create_connection((host, port), _ZOOKEEPER_CONNECT_TIMEOUT_S).close()
            return
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
    raise CommandError(
        f"no ZooKeeper at '{hosts}' ({'; '.join(reasons)}); start it, "
        "or leave --zookeeper out for an embedded one"
    )
