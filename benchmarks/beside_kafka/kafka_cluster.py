"""Apache Kafka with its ZooKeeper, as child processes in a folder.

Rule: Kafka as it is shipped: the JVM options of its own start scripts, its default settings but for
ports, folders and replication.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.beside_kafka.tethered import check_runs, tethered
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.zookeeper.embedded import is_serving
from storage_engine.zookeeper.java import find_java

HOST = "127.0.0.1"

_ZOOKEEPER_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_BROKER_MAIN = "kafka.Kafka"
_ZOOKEEPER_JVM = ("-Xmx512M", "-Xms512M")
_BROKER_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
_LOGGING = """\
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_START_S = 120
_POLL_S = 0.1


class KafkaCluster:
    """Its bootstrap servers, and the processes of its brokers."""

    def __init__(self, bootstrap_servers: str, broker_pids: Sequence[int]) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.broker_pids = broker_pids


@contextlib.contextmanager
def running_kafka(
    folder: Path,
    jars: Sequence[Path],
    settings: Sequence[tuple[str, str]],
    brokers: int,
    *,
    more_listeners: Mapping[str, int] | None = None,
) -> Iterator[KafkaCluster]:
    """A cluster that is up within the block and gone after it. `more_listeners`: ports by the
    names of protocols, beside PLAINTEXT, where there is one broker."""
    others = "".join(f",{name}://{HOST}:{port}" for name, port in (more_listeners or {}).items())
    folder.mkdir()
    (folder / "log4j.properties").write_text(_LOGGING)
    logging = f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}"
    java = [str(find_java()), "-Djava.awt.headless=true", logging]
    java += [f"-Djava.io.tmpdir={folder}", "-XX:-UsePerfData", "-cp", _joined(jars)]
    ports: list[int] = []
    for _ in range(brokers + 1):
        taken = [*ports, *(more_listeners or {}).values()]
        ports.append(find_free_port(HOST, avoid=taken))
    zookeeper, *addresses = (f"{HOST}:{port}" for port in ports)
    with contextlib.ExitStack() as stack:
        log = folder / "zookeeper.log"
        _write(folder / "zookeeper.properties", _zookeeper_settings(folder, ports[0]))
        command = [*java, *_ZOOKEEPER_JVM, _ZOOKEEPER_MAIN, str(folder / "zookeeper.properties")]
        process = stack.enter_context(tethered(command, log=log, folder=folder))
        _wait(lambda: is_serving(HOST, ports[0]), lambda: check_runs(process, "ZooKeeper", log))
        started = []
        for number, address in enumerate(addresses, 1):
            config, log = folder / f"broker-{number}.properties", folder / f"broker-{number}.log"
            own = (
                ("broker.id", str(number)),
                ("listeners", f"PLAINTEXT://{address}{others}"),
                ("log.dirs", str(folder / f"data-{number}")),
                ("zookeeper.connect", zookeeper),
            )
            _write(config, (*own, *settings))
            command = [*java, *_BROKER_JVM, _BROKER_MAIN, str(config)]
            started.append((stack.enter_context(tethered(command, log=log, folder=folder)), log))
        servers = ",".join(addresses)

        def check() -> None:
            for process, log in started:
                check_runs(process, "a broker of Apache Kafka", log)

        _wait(lambda: _are_up(servers, brokers), check)
        yield KafkaCluster(servers, [process.pid for process, _ in started])


def _zookeeper_settings(folder: Path, port: int) -> Sequence[tuple[str, str]]:
    return (
        ("dataDir", str(folder / "zookeeper")),
        ("clientPort", str(port)),
        ("clientPortAddress", HOST),
        ("maxClientCnxns", "0"),
        ("admin.enableServer", "false"),
    )


def _write(file: Path, settings: Sequence[tuple[str, str]]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings))


def _joined(jars: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, jars))


def _wait(is_done: Callable[[], bool], check: Callable[[], None]) -> None:
    deadline = time.monotonic() + _START_S
    while not is_done():
        check()
        if time.monotonic() > deadline:
            raise CommandError(f"Apache Kafka is not up after {_START_S} s")
        time.sleep(_POLL_S)


def _are_up(servers: str, brokers: int) -> bool:
    """Whether all of them know each other."""
    try:
        for server in servers.split(","):
            with Cluster(server, bootstrap_timeout_ms=1_000, deadline_ms=2_000) as cluster:
                if len(cluster.metadata([]).brokers) < brokers:
                    return False
    except HeadraceError:
        return False
    return True
