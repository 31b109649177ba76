"""The ZooKeeper that PySpark ships in its `jars/`, run as a child process, for one machine.

The child outlives its parent and holds none of its descriptors; `stop` or SIGTERM stops it. It
starts in 0.3 s with 60 MiB, because log4j is left off the class path.

Files in the data directory: `zoo.cfg`, `zookeeper.pid`, `zookeeper.log` (what the JVM itself has to
say; the last run's is `zookeeper.log.1`), `version-2/` (ZooKeeper's own).
"""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from storage_engine.core.errors import HeadraceError
from storage_engine.zookeeper.java import find_java
from storage_engine.zookeeper.process_end import has_ended

HOST = "127.0.0.1"
"""The embedded server has no access control, so that it must not be reachable from elsewhere."""

TICK_MS = 200
"""Sessions expire on multiples of it: small, so that a dead broker is noticed soon."""
MIN_SESSION_TIMEOUT_MS = 1_000
MAX_SESSION_TIMEOUT_MS = 60_000

_MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
_CLASS_PATH = ("zookeeper-[0-9]*", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")
"""The least set that serves requests. Without snappy-java it starts, but drops every session."""
_PORT_ATTEMPTS = 3
"""A free port may be taken by somebody else before the child binds it."""
_START_S = 15
_STOP_S = 5
_POLL_S = 0.01
_EXIT_CODES = {
    1: "it failed to start",
    2: "its configuration was refused",
    3: "it can't use its data directory",
}


class EmbeddedZooKeeperError(HeadraceError):
    """The embedded ZooKeeper did not start or stop."""


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
            raise EmbeddedZooKeeperError(
                f"ZooKeeper (pid {self.pid}) does not end, not even killed"
            )
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
    unsafe_no_fsync: bool = False,
) -> EmbeddedZooKeeper:
    """Start ZooKeeper on `data_dir` and wait until it serves; `port` 0 takes a free one.

    `unsafe_no_fsync` is for tests: a power loss may then lose what ZooKeeper acknowledged.
    """
    data_dir = data_dir.resolve()
    running = attach_embedded(data_dir)
    if running is not None:
        raise EmbeddedZooKeeperError(
            f"ZooKeeper runs already on {data_dir} (pid {running.pid}, port {running.port}): "
            "stop it first, or use another folder"
        )
    java = find_java()
    path = class_path()
    for attempt in range(1, _PORT_ATTEMPTS + 1):
        chosen_port = port or _free_port()
        _check_port_is_free(chosen_port)
        command = [
            str(java),
            *jvm_options(data_dir, unsafe_no_fsync=unsafe_no_fsync),
            "-cp",
            path,
            _MAIN_CLASS,
            str(_write_config(data_dir, chosen_port)),
        ]
        server = _spawn(command, data_dir, chosen_port)
        try:
            _wait_until_serving(server)
        except EmbeddedZooKeeperError:
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
    with log_file.open("wb") as log:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=data_dir,
                close_fds=True,
                start_new_session=True,  # a Ctrl-C for the parent must not stop it first
            )
        except OSError as error:
            raise EmbeddedZooKeeperError(f"Java does not run: {error}") from None
    pid_file = _pid_file(data_dir)
    pid_file.write_text(f"{process.pid} {port}\n")
    return EmbeddedZooKeeper(pid=process.pid, port=port, data_dir=data_dir, process=process)


def _wait_until_serving(server: EmbeddedZooKeeper) -> None:
    deadline = time.monotonic() + _START_S
    assert server.process is not None
    while time.monotonic() < deadline:
        exit_code = server.process.poll()
        if exit_code is not None:
            reason = _EXIT_CODES.get(exit_code, f"it ended with status {exit_code}")
            raise EmbeddedZooKeeperError(
                f"the embedded ZooKeeper on port {server.port} is not up, {reason}: "
                f"see {server.data_dir / 'zookeeper.log'}{_first_line(server.data_dir)}"
            )
        if is_serving(HOST, server.port):
            return
        time.sleep(_POLL_S)
    raise EmbeddedZooKeeperError(
        f"the embedded ZooKeeper on port {server.port} is not up after {_START_S} s: "
        f"see {server.data_dir / 'zookeeper.log'}"
    )


def is_serving(host: str, port: int) -> bool:
    """Return True when a ZooKeeper server answers requests there (its command `srvr`)."""
    answer = b""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(b"srvr")
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return False
    return b"Mode:" in answer


def jvm_options(data_dir: Path, *, unsafe_no_fsync: bool) -> list[str]:
    """Return the options of a small ZooKeeper server."""
    options = [
        "-Xmx64m",
        "-Xss256k",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        f"-XX:ErrorFile={data_dir / 'jvm-crash.log'}",
        # The class path has no logging library: slf4j would say so at every start.
        "-Dslf4j.internal.verbosity=ERROR",
        # The transaction log grows by this many KiB; the default of 64 MiB is for busy quorums.
        "-Dzookeeper.preAllocSize=4096",
        "-Djava.awt.headless=true",
    ]
    if unsafe_no_fsync:
        options.append("-Dzookeeper.forceSync=no")
    return options


def _write_config(data_dir: Path, port: int) -> Path:
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        config = data_dir / "zoo.cfg"
        config.write_text(
            "\n".join(
                (
                    f"tickTime={TICK_MS}",
                    f"minSessionTimeout={MIN_SESSION_TIMEOUT_MS}",
                    f"maxSessionTimeout={MAX_SESSION_TIMEOUT_MS}",
                    # A backslash escapes in a .properties file.
                    "dataDir=" + str(data_dir).replace("\\", "\\\\"),
                    f"clientPort={port}",
                    f"clientPortAddress={HOST}",
                    "maxClientCnxns=0",
                    "admin.enableServer=false",
                    "autopurge.snapRetainCount=3",
                    "autopurge.purgeInterval=1",
                    "4lw.commands.whitelist=srvr,ruok,stat,mntr",
                    "",
                )
            )
        )
    except OSError as error:
        raise EmbeddedZooKeeperError(
            f"ZooKeeper's data directory {data_dir} can't be written ({error.strerror})"
        ) from None
    return config


def class_path() -> str:
    """Return the jars that a ZooKeeper server needs, alone or in an ensemble."""
    spec = importlib.util.find_spec("pyspark")  # finds it without importing it
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedZooKeeperError(
            "the embedded ZooKeeper comes with PySpark, which is not installed: "
            "pip install pyspark, or give the address of a ZooKeeper of your own"
        )
    jars = Path(spec.submodule_search_locations[0]) / "jars"
    found: list[str] = []
    for name in _CLASS_PATH:
        pattern = f"{name}.jar" if name.endswith("*") else f"{name}-[0-9]*.jar"
        matches = sorted(jars.glob(pattern))
        if not matches:
            raise EmbeddedZooKeeperError(
                f"{jars} has no {pattern}: reinstall pyspark, "
                "or give the address of a ZooKeeper of your own"
            )
        found.append(str(matches[-1]))
    return os.pathsep.join(found)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _check_port_is_free(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Ports with late packets only are free for Java too, which sets the same option.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise EmbeddedZooKeeperError(
                f"port {port} of {HOST} can't be used for ZooKeeper ({reason}): choose another"
            ) from None


def _pid_file(data_dir: Path) -> Path:
    return data_dir / "zookeeper.pid"


def _is_ours(pid: int, data_dir: Path) -> bool:
    """Return True when `pid` is the ZooKeeper of `data_dir`, and not a later process with the same
    number."""
    try:
        # Empty for a zombie, which has ended but for its parent's `wait`.
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return _MAIN_CLASS.encode() in command and os.fsencode(data_dir / "zoo.cfg") in command


def _first_line(data_dir: Path) -> str:
    try:
        lines = (data_dir / "zookeeper.log").read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f" ({lines[0]})" if lines else ""
