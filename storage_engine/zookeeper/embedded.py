"""The ZooKeeper that PySpark ships in its `jars/`, run as a child process, for one machine.

The child outlives its parent and holds none of its descriptors; `stop` or SIGTERM stops it. It
starts in 0.3 s with 60 MiB, because log4j is left off the class path. Where no Java is found, the
error is one line, with the remedy.

With `ServerTls` it has one port, for TLS, and serves only clients whose certificate it trusts:
anybody who reaches a ZooKeeper can end all sessions.

Files in the data directory, all for their owner alone: `zoo.cfg`, `zookeeper.pid`, `zookeeper.log`
(the output of the JVM; the last run's is `zookeeper.log.1`), `version-2/` (ZooKeeper's
own).
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from storage_engine.zookeeper.server.config import (
    FILE_NAME,
    ServerTls,
    client_port,
    common_settings,
    format_settings,
)
from storage_engine.zookeeper.server.java import find_java
from storage_engine.zookeeper.server.program import (
    EXIT_REASONS,
    MAIN_CLASS,
    SMALL_HEAP_MIB,
    ZooKeeperServerError,
    check_port_is_free,
    class_path,
    embedded_options,
    is_serving,
)
from storage_engine.zookeeper.session_credentials import for_owner


def has_ended(pid: int) -> bool:
    """Return True once nothing of process `pid` is held any more; needs /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX" and threads <= 1


HOST = "127.0.0.1"
"""Without TLS the embedded server lets everybody in, so that it must not be reachable from
elsewhere."""

TICK_MS = 200
"""Sessions expire on multiples of it: small, so that a dead broker is noticed soon."""

_HEAP_WITH_TLS_MIB = 256
"""Room for the handshakes that may be under way; without them the process takes 90 MiB."""
_EARLIER_MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
"""The class that release 0.1.0 runs, and may have left running."""
_PORT_ATTEMPTS = 3
"""A free port may be taken by somebody else before the child binds it."""
_START_S = 15
_STOP_S = 5
_POLL_S = 0.01


@dataclass(slots=True, kw_only=True)
class EmbeddedZooKeeper:
    """A running child process, started by this process or found by `attach`."""

    pid: int
    port: int
    data_dir: Path
    process: "subprocess.Popen[bytes] | None" = None
    """None when another process is the parent."""

    @property
    def connect(self) -> str:
        """The value for `zookeeper.connect`."""
        return f"{HOST}:{self.port}"

    def is_alive(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None  # also takes it from the process table
        return _is_ours(self.pid, self.data_dir)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after 5 s; returns when the process is gone."""
        signals = (signal.SIGTERM, signal.SIGKILL)
        if self.is_alive() and not any(self._end_by(number) for number in signals):
            raise ZooKeeperServerError(f"ZooKeeper (pid {self.pid}) still runs after SIGKILL")
        _pid_file(self.data_dir).unlink(missing_ok=True)

    def _end_by(self, signal_number: signal.Signals) -> bool:
        """Return True when the process has ended and closed its port soon after the signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal_number)
        deadline = time.monotonic() + _STOP_S
        while not self._has_ended():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _has_ended(self) -> bool:
        if self.process is not None:
            return self.process.poll() is not None
        return has_ended(self.pid)


def start_embedded(
    data_dir: Path,
    *,
    port: int = 0,
    tls: ServerTls | None = None,
    unsafe_no_fsync: bool = False,
) -> EmbeddedZooKeeper:
    """Start ZooKeeper on `data_dir` and wait until it serves; `port` 0 takes a free one. With `tls`
    it speaks nothing else.

    `unsafe_no_fsync` is for tests: a power loss may then lose what ZooKeeper acknowledged.
    """
    data_dir = data_dir.resolve()
    running = attach_embedded(data_dir)
    if running is not None:
        raise ZooKeeperServerError(
            f"ZooKeeper runs already on {data_dir} (pid {running.pid}, port {running.port}): "
            "stop it first, or use another folder"
        )
    java = find_java()
    path = class_path(with_tls=tls is not None)
    for attempt in range(1, _PORT_ATTEMPTS + 1):
        chosen_port = port or _free_port()
        check_port_is_free(HOST, chosen_port)
        command = [
            str(java),
            *embedded_options(
                data_dir,
                unsafe_no_fsync=unsafe_no_fsync,
                heap_mib=SMALL_HEAP_MIB if tls is None else _HEAP_WITH_TLS_MIB,
            ),
            "-cp",
            path,
            MAIN_CLASS,
            str(_write_config(data_dir, chosen_port, tls)),
        ]
        server = _spawn(command, data_dir, chosen_port)
        try:
            _wait_until_serving(server, tls)
        except ZooKeeperServerError:
            server.stop()
            if port or attempt == _PORT_ATTEMPTS:
                raise
        except BaseException:
            server.stop()
            raise
        else:
            return server
    raise AssertionError("the last attempt returns or raises")


def attach_embedded(data_dir: Path) -> EmbeddedZooKeeper | None:
    """Return the ZooKeeper that runs on `data_dir`, whoever started it; None when there is none."""
    data_dir = data_dir.resolve()
    try:
        pid_text, port_text = _pid_file(data_dir).read_text().split()
        pid, port = int(pid_text), int(port_text)
    except (OSError, ValueError):
        return None
    return (
        EmbeddedZooKeeper(pid=pid, port=port, data_dir=data_dir)
        if _is_ours(pid, data_dir)
        else None
    )


def _spawn(command: list[str], data_dir: Path, port: int) -> EmbeddedZooKeeper:
    log_file = data_dir / "zookeeper.log"
    if log_file.exists():
        log_file.replace(data_dir / "zookeeper.log.1")
    with open(log_file, "wb", opener=for_owner) as log:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=data_dir,
                close_fds=True,
                start_new_session=True,  # a Ctrl-C for the parent must not stop it first
                umask=0o077,
            )
        except OSError as error:
            raise ZooKeeperServerError(f"Java does not run: {error}") from None
    with open(_pid_file(data_dir), "w", opener=for_owner) as file:
        file.write(f"{process.pid} {port}\n")
    return EmbeddedZooKeeper(pid=process.pid, port=port, data_dir=data_dir, process=process)


def _wait_until_serving(server: EmbeddedZooKeeper, tls: ServerTls | None) -> None:
    context = None if tls is None else tls.context()
    deadline = time.monotonic() + _START_S
    assert server.process is not None
    while time.monotonic() < deadline:
        exit_code = server.process.poll()
        if exit_code is not None:
            reason = EXIT_REASONS.get(exit_code, f"it ended with status {exit_code}")
            raise ZooKeeperServerError(
                f"the embedded ZooKeeper on port {server.port} is not up, {reason}: "
                f"see {server.data_dir / 'zookeeper.log'}{_first_line(server.data_dir)}"
            )
        if is_serving(HOST, server.port, context):
            return
        time.sleep(_POLL_S)
    raise ZooKeeperServerError(
        f"the embedded ZooKeeper on port {server.port} is not up after {_START_S} s: "
        f"see {server.data_dir / 'zookeeper.log'}"
    )


def _write_config(data_dir: Path, port: int, tls: ServerTls | None) -> Path:
    settings = {
        "tickTime": str(TICK_MS),
        **common_settings(data_dir),
        **client_port(HOST, port, tls),
        "maxClientCnxns": "0",
        "4lw.commands.whitelist": "srvr,ruok,stat,mntr",
    }
    config = _config_file(data_dir)
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(config, "w", opener=for_owner) as file:
            file.write(format_settings(settings))
    except OSError as error:
        raise ZooKeeperServerError(
            f"ZooKeeper's data directory {data_dir} can't be written ({error.strerror})"
        ) from None
    return config


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _pid_file(data_dir: Path) -> Path:
    return data_dir / "zookeeper.pid"


def _config_file(data_dir: Path) -> Path:
    return data_dir / FILE_NAME


def _is_ours(pid: int, data_dir: Path) -> bool:
    """Return True when `pid` is the ZooKeeper of `data_dir`, and not a later process with the same
    number."""
    try:
        # Empty for a zombie, which has ended but for its parent's `wait`.
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    mains = {MAIN_CLASS.encode(), _EARLIER_MAIN_CLASS.encode()}
    return not mains.isdisjoint(command) and os.fsencode(_config_file(data_dir)) in command


def _first_line(data_dir: Path) -> str:
    try:
        lines = (data_dir / "zookeeper.log").read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f" ({lines[0]})" if lines else ""
