"""The rates of Kafka's client for Java, by the measuring tools that Kafka has itself.

Rule: a JVM of its own for each measurement, with the heap of Kafka's script. The rates are the
tools' own: the start of the JVM is not in them, its cold first second is.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.beside_kafka.tethered import check_runs, tethered
from benchmarks.clients.loads import ProducerLoad
from storage_engine.tools.errors import CommandError
from storage_engine.zookeeper.server.java import find_java

_PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
_CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
_JVM = ("-Xmx512M", "-XX:-UsePerfData")
_TIMEOUT_S = 300
_SILENCE_MS = 30_000
_SENT = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)
_LOGGING = """\
log4j.rootLogger=ERROR, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%p %m (%c)%n
"""
_READ_FIELDS = 10
"""The number of fields in the consumer's line; the last one is records a second."""
_READ_RECORDS = 4


class JavaTools:
    """Kafka's tools, with the jars that they need, and a folder for their files."""

    def __init__(self, jars: Sequence[Path], folder: Path) -> None:
        logging = folder / "tools-log4j.properties"
        logging.write_text(_LOGGING)
        self._folder = folder
        self._java = [str(find_java()), *_JVM, f"-Dlog4j.configuration=file:{logging}"]
        self._java += [f"-Djava.io.tmpdir={folder}", "-cp", os.pathsep.join(map(str, jars))]

    def produce(self, servers: str, topic: str, load: ProducerLoad) -> float:
        """Return records a second, until all are acknowledged."""
        settings = {"bootstrap.servers": servers, "acks": "all", **load.settings}
        written = self._run(
            _PRODUCER,
            *("--topic", topic, "--num-records", str(load.records), "--throughput", "-1"),
            *("--record-size", str(load.value_bytes), "--producer-props"),
            *(f"{name}={value}" for name, value in settings.items()),
        )
        found = _SENT.findall(written)
        if not found or int(found[-1][0]) != load.records:
            raise CommandError(
                f"Kafka's producer for Java did not send all of {load.records:,} records to "
                f"{servers}: {_last(written)}"
            )
        return float(found[-1][1])

    def consume(self, servers: str, topic: str, records: int) -> float:
        """Return records a second, from when the group gave the consumer its partitions."""
        written = self._run(
            _CONSUMER,
            *("--bootstrap-server", servers, "--topic", topic, "--messages", str(records)),
            *("--hide-header", "--timeout", str(_SILENCE_MS)),
        )
        fields = _last(written).split(", ")
        if len(fields) != _READ_FIELDS or int(fields[_READ_RECORDS]) < records:
            raise CommandError(
                f"Kafka's consumer for Java did not read all of {records:,} records from "
                f"{servers}: {_last(written)}"
            )
        return float(fields[-1])

    def _run(self, program: str, *arguments: str) -> str:
        log = self._folder / "tool.log"
        command = [*self._java, program, *arguments]
        with tethered(command, log=log, folder=self._folder) as process:
            try:
                status = process.wait(_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise CommandError(f"{program} is not done after {_TIMEOUT_S} s") from None
            if status:
                check_runs(process, program, log)
        return log.read_text("utf-8", "replace")


def _last(written: str) -> str:
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
