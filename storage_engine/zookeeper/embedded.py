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
import importlib.util
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from storage_engine.core.errors import HeadraceError
from storage_engine.zookeeper.session_credentials import for_owner

MINIMUM_JAVA_VERSION = 17
"""The oldest version that PySpark 4 runs on; Spark needs it anyway."""

_REMEDY = f"install a JRE of version {MINIMUM_JAVA_VERSION} or newer, or set JAVA_HOME to one"
_VERSION_COMMAND_TIMEOUT_S = 20.0


class JavaError(HeadraceError):
    """There is no Java, or one that is too old."""


def find_java() -> Path:
    """Return the `java` of JAVA_HOME, else of PATH; JavaError when there is none or it is too
    old."""
    java = _candidate()
    if java is None:
        raise JavaError(f"Java was not found (neither JAVA_HOME nor PATH has it): {_REMEDY}")
    version = version_of(java)
    if version < MINIMUM_JAVA_VERSION:
        raise JavaError(f"{java} is Java {version}, which is too old: {_REMEDY}")
    return java


def major_version(text: str) -> int | None:
    """Return the major version in `17.0.15`, `1.8.0_392` or `21`; None when there is none."""
    match = re.match(r"(?:1\.)?(\d+)", text)
    return int(match.group(1)) if match else None


def _candidate() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if os.access(java, os.X_OK) and java.is_file():
            return java
    found = shutil.which("java")
    return Path(found) if found else None


def version_of(java: Path) -> int:
    """The major version of this `java`; JavaError when it does not report it."""
    # The file `release` of the installation is quick to read; asking the JVM takes 50 ms and more.
    release = java.resolve().parent.parent / "release"
    try:
        match = re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(), re.MULTILINE)
    except OSError:
        match = None
    version = major_version(match.group(1)) if match else None
    return version if version is not None else _version_from_command(java)


def _version_from_command(java: Path) -> int:
    try:
        answer = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{java} does not run ({error}): {_REMEDY}") from None
    match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    version = major_version(match.group(1)) if match else None
    if version is None:
        raise JavaError(f"{java} does not report its version: {_REMEDY}")
    return version


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
MIN_SESSION_TIMEOUT_MS = 1_000
MAX_SESSION_TIMEOUT_MS = 60_000

_MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
_CLASS_PATH = ("zookeeper-[0-9]*", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")
"""The least set that serves requests. Without snappy-java it starts, but drops every session."""
_TLS_CLASS_PATH = (
    *("netty-handler", "netty-transport", "netty-buffer", "netty-common", "netty-resolver"),
    *("netty-codec", "netty-transport-classes-epoll", "netty-transport-native-unix-common"),
)
_TLS_CLASS_PATH_OF_SOME = "netty-codec-base"
"""Split from netty-codec in Netty 4.2."""
_HANDSHAKES_MAX = 2_000
"""Connections above this number whose handshake is under way are closed at once: each takes memory
for up to ten seconds, and strangers may open any number."""
HEAP_MIB = 64
_HEAP_WITH_TLS_MIB = 256
"""Room for that many handshakes; without them the process takes 90 MiB."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """The PEM files of a server that serves TLS only."""

    keystore: Path
    """The server's key in PKCS#8 and its certificate; the server trusts it, too."""
    truststore: Path
    """The authority of the certificates that clients need."""

    def config_lines(self, port: int) -> list[str]:
        return [
            f"secureClientPort={port}",
            f"secureClientPortAddress={HOST}",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"ssl.keyStore.location={_escaped(self.keystore)}",
            "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={_escaped(self.truststore)}",
            "ssl.trustStore.type=PEM",
            "ssl.clientAuth=need",
            # The authority identifies a client, wherever it connects from.
            "ssl.hostnameVerification=false",
        ]

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a client with the server's own certificate, for any name."""
        context = ssl.create_default_context(cafile=self.truststore)
        context.check_hostname = False
        context.load_cert_chain(self.keystore)
        return context


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
            raise EmbeddedZooKeeperError(f"ZooKeeper (pid {self.pid}) still runs after SIGKILL")
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
        raise EmbeddedZooKeeperError(
            f"ZooKeeper runs already on {data_dir} (pid {running.pid}, port {running.port}): "
            "stop it first, or use another folder"
        )
    java = find_java()
    path = class_path(with_tls=tls is not None)
    for attempt in range(1, _PORT_ATTEMPTS + 1):
        chosen_port = port or _free_port()
        _check_port_is_free(chosen_port)
        command = [
            str(java),
            *jvm_options(
                data_dir,
                unsafe_no_fsync=unsafe_no_fsync,
                heap_mib=HEAP_MIB if tls is None else _HEAP_WITH_TLS_MIB,
            ),
            "-cp",
            path,
            _MAIN_CLASS,
            str(_write_config(data_dir, chosen_port, tls)),
        ]
        server = _spawn(command, data_dir, chosen_port)
        try:
            _wait_until_serving(server, tls)
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
            raise EmbeddedZooKeeperError(f"Java does not run: {error}") from None
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
            reason = _EXIT_CODES.get(exit_code, f"it ended with status {exit_code}")
            raise EmbeddedZooKeeperError(
                f"the embedded ZooKeeper on port {server.port} is not up, {reason}: "
                f"see {server.data_dir / 'zookeeper.log'}{_first_line(server.data_dir)}"
            )
        if is_serving(HOST, server.port, context):
            return
        time.sleep(_POLL_S)
    raise EmbeddedZooKeeperError(
        f"the embedded ZooKeeper on port {server.port} is not up after {_START_S} s: "
        f"see {server.data_dir / 'zookeeper.log'}"
    )


def is_serving(host: str, port: int, tls: ssl.SSLContext | None = None) -> bool:
    """Return True when a ZooKeeper server answers requests there (its command `srvr`)."""
    answer = b""
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(socket.create_connection((host, port), timeout=1))
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=host))
            connection.sendall(b"srvr")
            while chunk := connection.recv(4096):
                answer += chunk
        except OSError:
            return False
    return b"Mode:" in answer


def jvm_options(data_dir: Path, *, unsafe_no_fsync: bool, heap_mib: int = HEAP_MIB) -> list[str]:
    """Return the options of a small ZooKeeper server."""
    options = [
        f"-Xmx{heap_mib}m",
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
        # For TLS. The code of another library would be unpacked into the system's folder of
        # temporary files.
        "-Dio.netty.transport.noNative=true",
        f"-Dzookeeper.netty.server.outstandingHandshake.limit={_HANDSHAKES_MAX}",
    ]
    if unsafe_no_fsync:
        options.append("-Dzookeeper.forceSync=no")
    return options


def _write_config(data_dir: Path, port: int, tls: ServerTls | None) -> Path:
    plain = [f"clientPort={port}", f"clientPortAddress={HOST}"]
    lines = [
        f"tickTime={TICK_MS}",
        f"minSessionTimeout={MIN_SESSION_TIMEOUT_MS}",
        f"maxSessionTimeout={MAX_SESSION_TIMEOUT_MS}",
        f"dataDir={_escaped(data_dir)}",
        *(plain if tls is None else tls.config_lines(port)),
        "maxClientCnxns=0",
        "admin.enableServer=false",
        "autopurge.snapRetainCount=3",
        "autopurge.purgeInterval=1",
        "4lw.commands.whitelist=srvr,ruok,stat,mntr",
        "",
    ]
    config = _config_file(data_dir)
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(config, "w", opener=for_owner) as file:
            file.write("\n".join(lines))
    except OSError as error:
        raise EmbeddedZooKeeperError(
            f"ZooKeeper's data directory {data_dir} can't be written ({error.strerror})"
        ) from None
    return config


def _escaped(path: Path) -> str:
    """Double backslashes, which escape characters in a .properties file."""
    return str(path).replace("\\", "\\\\")


def class_path(*, with_tls: bool = False) -> str:
    """Return the jars that a ZooKeeper server needs, alone or in an ensemble."""
    spec = importlib.util.find_spec("pyspark")  # finds it without importing it
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedZooKeeperError(
            "the embedded ZooKeeper comes with PySpark, which is not installed: "
            "pip install pyspark, or give the address of a ZooKeeper of your own"
        )
    jars = Path(spec.submodule_search_locations[0]) / "jars"
    found: list[str] = []
    needed = (*_CLASS_PATH, *_TLS_CLASS_PATH, _TLS_CLASS_PATH_OF_SOME) if with_tls else _CLASS_PATH
    for name in needed:
        pattern = f"{name}.jar" if name.endswith("*") else f"{name}-[0-9]*.jar"
        matches = sorted(jars.glob(pattern))
        if not matches and name == _TLS_CLASS_PATH_OF_SOME:
            continue
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


def _config_file(data_dir: Path) -> Path:
    return data_dir / "zoo.cfg"


def _is_ours(pid: int, data_dir: Path) -> bool:
    """Return True when `pid` is the ZooKeeper of `data_dir`, and not a later process with the same
    number."""
    try:
        # Empty for a zombie, which has ended but for its parent's `wait`.
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return _MAIN_CLASS.encode() in command and os.fsencode(_config_file(data_dir)) in command


def _first_line(data_dir: Path) -> str:
    try:
        lines = (data_dir / "zookeeper.log").read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f" ({lines[0]})" if lines else ""
