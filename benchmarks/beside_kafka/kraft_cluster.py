"""Apache Kafka 4 as one child process in a folder, which is broker and controller (KRaft).

Rule: Kafka as it is shipped, like `kafka_cluster`, with one replica of its own topics.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from benchmarks.beside_kafka.tethered import tethered
from benchmarks.support.brokers import HOST, Brokers, free_ports, know_each_other, wait_until
from storage_engine.core.ids import topic_id_to_text
from storage_engine.tools.errors import CommandError
from storage_engine.zookeeper.server.java import find_java

_JVM = ("-Xmx512M", "-Xms256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_FORMAT_S = 60
_START_S = 120
_LOGGING = """\
<Configuration status="OFF">
<Appenders><Console name="stdout"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="stdout"/></Root></Loggers>
</Configuration>
"""
_OWN_TOPICS = (
    ("offsets.topic.replication.factor", "1"),
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
)


@contextlib.contextmanager
def running_kraft(
    folder: Path,
    jars: Sequence[Path],
    settings: Sequence[tuple[str, str]] = (),
    *,
    jvm: Sequence[str] = _JVM,
) -> Iterator[Brokers]:
    """Run Kafka within the block, in a new folder. `jvm`: by default what a short test needs."""
    folder.mkdir()
    port, controller_port = free_ports(2)
    config, log = folder / "server.properties", folder / "server.log"
    own = (
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("controller.quorum.voters", f"1@{HOST}:{controller_port}"),
        ("controller.listener.names", "CONTROLLER"),
        ("listeners", f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}"),
        ("log.dirs", str(folder / "data")),
    )
    lines = [f"{name}={value}\n" for name, value in (*own, *_OWN_TOPICS, *settings)]
    config.write_text("".join(lines))
    (folder / "log4j2.xml").write_text(_LOGGING)
    java = [str(find_java()), "-Djava.awt.headless=true", f"-Djava.io.tmpdir={folder}"]
    java += [f"-Dlog4j2.configurationFile={folder / 'log4j2.xml'}", "-XX:-UsePerfData", *jvm]
    java += ["-cp", os.pathsep.join(map(str, jars))]
    _format([*java, "kafka.tools.StorageTool"], config)
    with tethered([*java, "kafka.Kafka", str(config)], log=log, folder=folder) as process:
        servers, what = f"{HOST}:{port}", "Apache Kafka"
        wait_until(lambda: know_each_other(servers, 1), what, [(process, log)], _START_S)
        yield Brokers(servers, [process.pid])


def _format(tool: Sequence[str], config: Path) -> None:
    command = [*tool, "format", "-t", topic_id_to_text(uuid4()), "-c", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_S, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
        raise CommandError(f"the log dir of Apache Kafka can't be formatted: {lines[-1]}")
