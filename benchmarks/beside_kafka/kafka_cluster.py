"""Apache Kafka with its ZooKeeper, as child processes in a folder.

Rule: Kafka as it is shipped: the JVM options of its own start scripts, and its default settings
except for ports, folders and replication.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.beside_kafka.tethered import tethered
from benchmarks.support.brokers import (
    HOST,
    Brokers,
    free_ports,
    know_each_other,
    wait_until,
)
from storage_engine.zookeeper.server.java import find_java
from storage_engine.zookeeper.server.program import is_serving

_ZOOKEEPER_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_BROKER_MAIN = "kafka.Kafka"
_ZOOKEEPER_JVM = ("-Xmx512M", "-Xms512M")
BROKER_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""The options of Kafka's own start script."""
_LOGGING = """\
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_START_S = 120


@contextlib.contextmanager
def running_kafka(
    folder: Path,
    jars: Sequence[Path],
    settings: Sequence[tuple[str, str]],
    brokers: int,
    *,
    more_listeners: Mapping[str, int] | None = None,
) -> Iterator[Brokers]:
    """Run a cluster within the block. `more_listeners`: ports by the names of protocols, beside
    PLAINTEXT, for a cluster of one broker."""
    others = "".join(f",{name}://{HOST}:{port}" for name, port in (more_listeners or {}).items())
    folder.mkdir()
    (folder / "log4j.properties").write_text(_LOGGING)
    logging = f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}"
    java = [str(find_java()), "-Djava.awt.headless=true", logging]
    java += [f"-Djava.io.tmpdir={folder}", "-XX:-UsePerfData"]
    java += ["-cp", os.pathsep.join(map(str, jars))]
    ports = free_ports(brokers + 1, avoid=(more_listeners or {}).values())
    zookeeper, *addresses = (f"{HOST}:{port}" for port in ports)
    with contextlib.ExitStack() as stack:
        log = folder / "zookeeper.log"
        _write(folder / "zookeeper.properties", _zookeeper_settings(folder, ports[0]))
        command = [*java, *_ZOOKEEPER_JVM, _ZOOKEEPER_MAIN, str(folder / "zookeeper.properties")]
        process = stack.enter_context(tethered(command, log=log, folder=folder))
        wait_until(lambda: is_serving(HOST, ports[0]), "ZooKeeper", [(process, log)], _START_S)
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
            command = [*java, *BROKER_JVM, _BROKER_MAIN, str(config)]
            started.append((stack.enter_context(tethered(command, log=log, folder=folder)), log))
        servers = ",".join(addresses)
        what = "a broker of Apache Kafka"
        wait_until(lambda: know_each_other(servers, brokers), what, started, _START_S)
        yield Brokers(servers, [process.pid for process, _ in started])


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
