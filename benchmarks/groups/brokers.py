"""The broker of each side, with the same settings, and its coordinator awake."""

import argparse
import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.arguments import scratch
from benchmarks.beside_kafka.jars import KRAFT, fetch_jars
from benchmarks.beside_kafka.kafka_cluster import BROKER_JVM
from benchmarks.beside_kafka.kraft_cluster import running_kraft
from benchmarks.beside_kafka.processor_time import seconds_of
from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.groups.connections import MemberConnection
from benchmarks.support.brokers import HOST, free_ports, running_brokers
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.messages import find_coordinator
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import report_line

SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.max.size": "100000",
    "group.max.size": "100000",
}
_OURS = {"zookeeper.session.timeout.ms": "60000"}
"""A busy machine must not end the broker's session."""
TOPIC = "many"

_FIND_VERSION = 4
_CREATED_MS = 300_000
_TRIES = 600
_RETRY_S = 0.1


class Coordinator(NamedTuple):
    """The one broker of a side."""

    side: str
    bootstrap_servers: str
    pids: Sequence[int]

    @classmethod
    def ready(cls, side: str, bootstrap_servers: str, pids: Sequence[int]) -> Self:
        """Return a broker whose coordinator serves groups."""
        broker = cls(side, bootstrap_servers, pids)
        asyncio.run(broker._serve_groups())
        return broker

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap_servers.rpartition(":")
        return host, int(port)

    def cpu_s(self) -> float:
        """Return the broker's processor time so far."""
        return seconds_of(self.pids)

    def create(self, partitions: int) -> None:
        """Create TOPIC."""
        with Cluster(self.bootstrap_servers, deadline_ms=_CREATED_MS) as cluster:
            create_topic(cluster, TOPIC, partitions, 1)

    async def _serve_groups(self) -> None:
        """Have the broker create the topic of its coordinators, as the first consumer does."""
        connection = await MemberConnection.open(self.address)
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["first"])
        for _ in range(_TRIES):
            answer = await connection.ask(find_coordinator.API, _FIND_VERSION, request)
            if not answer.coordinators[0].error_code:
                break
            await asyncio.sleep(_RETRY_S)
        else:
            code = ErrorCode.of(answer.coordinators[0].error_code)
            raise CommandError(f"{self.side} has no coordinator: {code.meaning}")
        connection.close()


class Sides:
    """Starts the brokers that are asked for; jars are fetched once."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._dir: Path | None = args.dir
        self.names = [OURS]
        self._jars: Sequence[Path] = ()
        if args.beside_kafka:
            args.folder.mkdir(parents=True, exist_ok=True)
            self._jars = fetch_jars(args.folder, KRAFT)
            self.names.append(THEIRS)

    @contextlib.contextmanager
    def running(self, side: str, settings: Mapping[str, str]) -> Iterator[Coordinator]:
        """Run a new broker within the block."""
        report_line(f"starting {side}")
        wanted = {**SETTINGS, **settings}
        with scratch(self._dir) as folder:
            if side == THEIRS:
                jvm = tuple(BROKER_JVM)
                with running_kraft(
                    folder / THEIRS, self._jars, tuple(wanted.items()), jvm=jvm
                ) as kafka:
                    yield Coordinator.ready(side, kafka.bootstrap_servers, kafka.pids)
                return
            (port,) = free_ports(1)
            servers = f"{HOST}:{port}"
            wanted |= {"listeners": f"PLAINTEXT://{servers}", **_OURS}
            with running_brokers(folder / OURS, "the broker", servers, [wanted]) as pids:
                yield Coordinator.ready(side, servers, pids)
