"""The command line of a ZooKeeper server: the jars that it needs of those that PySpark brings, and
the options of its JVM.

`QuorumPeerMain` runs servers of an ensemble and single ones, and purges old snapshots, which the
class for single ones alone does not do.
"""

import importlib.util
import os
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

from storage_engine.core.errors import HeadraceError

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

_CLASS_PATH = ("zookeeper-[0-9]*", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")
"""The least set that serves requests. Without snappy-java it starts, but drops every session."""
_TLS_CLASS_PATH = (
    *("netty-handler", "netty-transport", "netty-buffer", "netty-common", "netty-resolver"),
    *("netty-codec", "netty-transport-classes-epoll", "netty-transport-native-unix-common"),
)
_TLS_CLASS_PATH_OF_SOME = "netty-codec-base"
"""Split from netty-codec in Netty 4.2."""
_LOG_CLASS_PATH = ("log4j-api", "log4j-core", "log4j-slf4j2-impl")
"""Without them ZooKeeper logs nothing; with them it starts some 0.3 s later."""
SMALL_HEAP_MIB = 64
_HANDSHAKES_MAX = 2_000
"""Connections above this number whose handshake is under way are closed at once: each takes memory
for up to ten seconds, and strangers may open any number."""

EXIT_REASONS = {
    1: "it failed to start",
    2: "its configuration was refused",
    3: "it can't use its data directory",
}
"""By its exit status."""


class ZooKeeperServerError(HeadraceError):
    """A ZooKeeper server of ours did not start or stop."""


def class_path(*, with_tls: bool = False, with_log: bool = False) -> str:
    """Return the jars that a ZooKeeper server needs, alone or in an ensemble."""
    spec = importlib.util.find_spec("pyspark")  # finds it without importing it
    if spec is None or not spec.submodule_search_locations:
        raise ZooKeeperServerError(
            "the embedded ZooKeeper comes with PySpark, which is not installed: "
            "pip install pyspark, or give the address of a ZooKeeper of your own"
        )
    jars = Path(spec.submodule_search_locations[0]) / "jars"
    found: list[str] = []
    needed = [*_CLASS_PATH]
    if with_tls:
        needed += [*_TLS_CLASS_PATH, _TLS_CLASS_PATH_OF_SOME]
    if with_log:
        needed += _LOG_CLASS_PATH
    for name in needed:
        pattern = f"{name}.jar" if name.endswith("*") else f"{name}-[0-9]*.jar"
        matches = sorted(jars.glob(pattern))
        if not matches and name == _TLS_CLASS_PATH_OF_SOME:
            continue
        if not matches:
            raise ZooKeeperServerError(
                f"{jars} has no {pattern}: reinstall pyspark, "
                "or give the address of a ZooKeeper of your own"
            )
        found.append(str(matches[-1]))
    return os.pathsep.join(found)


def common_options(data_dir: Path) -> list[str]:
    """Return the options of every server's JVM."""
    return [
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        f"-XX:ErrorFile={data_dir / 'jvm-crash.log'}",
        "-Djava.awt.headless=true",
        # For TLS. The code of another library would be unpacked into the system's folder of
        # temporary files.
        "-Dio.netty.transport.noNative=true",
        f"-Dzookeeper.netty.server.outstandingHandshake.limit={_HANDSHAKES_MAX}",
        # It would look for log4j 1.
        "-Dzookeeper.jmx.log4j.disable=true",
    ]


def embedded_options(
    data_dir: Path, *, unsafe_no_fsync: bool, heap_mib: int = SMALL_HEAP_MIB
) -> list[str]:
    """Return the options of a small server, which starts fast."""
    options = [
        f"-Xmx{heap_mib}m",
        "-Xss256k",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *common_options(data_dir),
        # The class path has no logging library: slf4j would say so at every start.
        "-Dslf4j.internal.verbosity=ERROR",
        # The transaction log grows by this many KiB; the default of 64 MiB is for busy quorums.
        "-Dzookeeper.preAllocSize=4096",
    ]
    if unsafe_no_fsync:
        options.append("-Dzookeeper.forceSync=no")
    return options


def production_options(data_dir: Path, *, heap: str, log_config: Path) -> list[str]:
    """Return the options of a server for production, whose pauses must be short: the heap is there
    from the start, and is collected beside the work."""
    return [
        f"-Xms{heap}",
        f"-Xmx{heap}",
        "-XX:+AlwaysPreTouch",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=50",
        *common_options(data_dir),
        f"-Dlog4j2.configurationFile={log_config}",
        "-Dlog4j2.disableJmx=true",
    ]


def is_serving(host: str, port: int, tls: ssl.SSLContext | None = None) -> bool:
    """Return True when a ZooKeeper server answers requests there (its command `srvr`)."""
    return b"Mode:" in server_report(host, port, tls)


def server_report(host: str, port: int, tls: ssl.SSLContext | None = None) -> bytes:
    """The answer to the command `srvr`; empty where nothing answers."""
    answer = b""
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(socket.create_connection((host, port), timeout=1))
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=host))
            connection.sendall(b"srvr")
            while chunk := connection.recv(4096):
                answer += chunk
        except OSError:
            return b""
    return answer


def check_port_is_free(host: str, port: int) -> None:
    """ZooKeeperServerError when a server could not listen there."""
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # Ports with late packets only are free for Java too, which sets the same option.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ZooKeeperServerError(
            f"port {port} of {host} can't be used for ZooKeeper ({reason}): choose another"
        ) from None
