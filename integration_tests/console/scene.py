"""What the console's pages are shown: a cluster with topics that people have, messages that want to
harm whoever looks at them, a group that is behind, a query that tells of itself, a transaction that
is left open, and dead letters; and the console's process in front of it."""

import contextlib
import json
import re
import selectors
import signal
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from integration_tests.forks.forked import popen
from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import DEADLINE_S, create_topic
from integration_tests.support.command_line import COMMAND, ROOT, succeed_here
from integration_tests.support.transactional_clients import Confluent
from storage_engine.client.cluster import Cluster
from storage_engine.client.micro_batches import MicroBatches, MicroBatchMember
from storage_engine.core.ids import TopicPartition as Partition
from storage_engine.protocol.dead_letter_headers import OFFSET, PARTITION, REASON, TIMESTAMP, TOPIC
from storage_engine.tools.local.local_cluster import LocalCluster

START_S = 60.0
EVERY_MS = 2000
"""From one micro-batch to the next."""
MARKUP = "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 2'>"
"""A page that took it for markup would run one of both."""
NO_UTF8 = b"\xff\xfe\x00 not text"
DEEP = "[" * 10_000 + "]" * 10_000
LARGE_BYTES = 10 * 1024 * 1024
TURNED = "invoice\u202efdp.exe"
"""Looks like `invoiceexe.pdf` where the sign that turns the order is obeyed."""
LARGE_NUMBER = 9_007_199_254_740_993
"""A double makes it …992."""


@dataclass(frozen=True, slots=True)
class ConsoleInFront:
    """A running `headrace console`."""

    address: str
    pid: int

    def post(self, events: list[dict[str, Any]]) -> None:
        """As `connector.QueryMetrics` does."""
        request = urllib.request.Request(
            f"{self.address}/api/v1/queries/progress",
            json.dumps({"format": 1, "events": events}).encode(),
            {"Content-Type": "application/json", "X-Headrace-Progress": "1"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 204


@contextlib.contextmanager
def console_in_front(cluster: LocalCluster, *options: str) -> Iterator[ConsoleInFront]:
    """In front of a cluster, on a free port; gone after the block. No disk is full for it before a
    broker refuses appends: the machine that runs the tests may have any."""
    options = ("--disk-full-percent", "100", *options)
    log = cluster.directory / "console.log"
    with log.open("w") as errors:
        process = popen(
            [*COMMAND, "console", "--cluster", cluster.directory, "--port", "0", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
        )
    assert process.stdout is not None
    try:
        said = ""
        deadline = time.monotonic() + START_S
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while (found := re.search(r"https?://[\w.:\[\]-]+", said)) is None:
                ready = selector.select(max(0, deadline - time.monotonic()))
                line = process.stdout.readline() if ready else ""
                assert line, f"the console ended, or said no address: {said}{log.read_text()}"
                said += line
        yield ConsoleInFront(found[0], process.pid)
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.communicate(timeout=START_S)


class Scene:
    """Its names begin with `prefix`, since others use the cluster, too."""

    def __init__(self, cluster: LocalCluster, prefix: str, *, commits: int = 2) -> None:
        """`commits`: micro-batches that its sink has seen."""
        self._commits = commits
        self.cluster = cluster
        self.servers = cluster.bootstrap_servers
        self.orders = f"{prefix}orders"
        self.flights = f"{prefix}flights"
        self.hostile = f"{prefix}hostile"
        self.delays = f"{prefix}delays"
        self.dead = f"{prefix}orders-dead"
        self.group = f"{prefix}audit"
        self.turned_group = f"{prefix}{TURNED}{MARKUP}"
        self.sink = f"{prefix}delays-sink"
        self.query = str(uuid.uuid4())
        self.run = str(uuid.uuid4())
        self.member = 0
        """The producer id of the task that writes: more than a double can hold."""
        self.told = self._told_until_ms = 0
        """Micro-batches, and until when."""
        self._client: Cluster | None = None
        self._open: Confluent | None = None

    @contextlib.contextmanager
    def played(self) -> Iterator["Scene"]:
        """Everything is there within the block; what holds connections is closed after it."""
        try:
            for topic in (self.orders, self.delays, self.dead):
                create_topic(self.cluster, topic, partitions=3)
            create_topic(self.cluster, self.hostile, config={"max.message.bytes": "12000000"})
            self._write_orders()
            self._write_hostile()
            self._write_letters()
            self._write_flights()
            self._read_some()
            self._leave_open()
            yield self
        finally:
            if self._open is not None:
                self._open.abort()
                self._open.close()
            if self._client is not None:
                self._client.close()

    def _send(self, topic: str, records: Iterable[dict[str, Any]]) -> None:
        producer = Producer(
            {
                **settings_for(self.servers),
                "enable.idempotence": True,
                "compression.type": "zstd",
                "log_level": 0,
                "message.max.bytes": LARGE_BYTES + 1_000_000,
            }
        )
        for record in records:
            producer.produce(topic, **record)
        assert producer.flush(DEADLINE_S) == 0

    def _write_orders(self) -> None:
        self._send(
            self.orders,
            (
                {
                    "key": f"customer-{number % 7}".encode(),
                    "value": json.dumps(
                        {
                            "id": LARGE_NUMBER + number,
                            "name": ("anna", "bert", "carla")[number % 3],
                            "price": number * 1.25,
                            "items": [f"item-{number}"],
                        }
                    ).encode(),
                    "partition": number % 3,
                    "headers": [("source", b"shop" if number % 2 else b"app")],
                }
                for number in range(300)
            ),
        )

    def write_more(self) -> None:
        """Some more of what is on its way all day."""
        self._send(self.delays, ({"value": b"x" * 200, "partition": n % 2} for n in range(200)))

    def _write_hostile(self) -> None:
        # One after the other: who looks for one knows its offset.
        values = (MARKUP.encode(), NO_UTF8, DEEP.encode(), TURNED.encode(), b"x" * LARGE_BYTES)
        records: list[dict[str, Any]] = [{"value": value, "key": None} for value in values]
        records[0] |= {"key": MARKUP.encode(), "headers": [(MARKUP, MARKUP.encode())]}
        self._send(self.hostile, records)

    def _write_letters(self) -> None:
        records = (
            {
                "key": f"customer-{number}".encode(),
                "value": b"no order at all",
                "partition": number % 3,
                "headers": [
                    (TOPIC, self.orders.encode()),
                    (PARTITION, b"1"),
                    (OFFSET, str(number).encode()),
                    (TIMESTAMP, b"1795700000000"),
                    (REASON, f"no JSON {MARKUP}".encode()),
                ],
            }
            for number in range(6)
        )
        self._send(self.dead, records)

    def _write_flights(self) -> None:
        schema = "id BIGINT NOT NULL, carrier STRING, delay DOUBLE"
        options = ("--bootstrap-server", self.servers)
        succeed_here(
            "topics", "create", self.flights, *options, "--partitions", 2,
            "--replication-factor", 3, "--schema", schema,
        )  # fmt: skip
        rows = ({"id": LARGE_NUMBER + n, "carrier": "UA", "delay": n / 4} for n in range(40))
        self._send(self.flights, ({"value": json.dumps(row).encode()} for row in rows))

    def _read_some(self) -> None:
        """A group has read a third of the orders; the name of another one is not what it seems."""
        consumer = Consumer({**settings_for(self.servers), "group.id": self.group})
        consumer.commit(
            offsets=[TopicPartition(self.orders, number, 33) for number in range(3)],
            asynchronous=False,
        )
        consumer.close()
        turned = Consumer({**settings_for(self.servers), "group.id": self.turned_group})
        turned.commit(offsets=[TopicPartition(self.hostile, 0, 1)], asynchronous=False)
        turned.close()

    def _leave_open(self) -> None:
        """Commits of a sink, one more micro-batch that a task has begun, and a transaction of some
        other program, in which it has written and not committed."""
        self._client = Cluster(self.servers)
        batches = MicroBatches(self._client, self.sink, self.query)
        for batch in range(self._commits + 1):
            member = batches.join(batch)
            assert isinstance(member, MicroBatchMember)
            self.member = member.producer_id
            member.enlist([Partition(self.delays, batch % 3)])
            if batch < self._commits:
                batches.commit(batch, [member.id], rows=8_000)
        self._open = Confluent(self.servers, f"{self.orders}-loader", timeout_ms=600_000)
        self._open.begin()
        self._open.write(self.orders, 0, b'{"id": 1, "name": "not committed"}')

    def progress(self, *, count: int = 30) -> list[dict[str, Any]]:
        """What a query tells: micro-batches, one every two seconds until now, since it was asked
        last or so many."""
        now_ms = int(time.time() * 1000)
        if self._told_until_ms == 0:
            self._told_until_ms = now_ms - EVERY_MS * count
        query = {"id": self.query, "run_id": self.run, "name": "delays"}
        common = {
            "query": query,
            "exception": None,
            "trigger_ms": EVERY_MS,
            "sink": {"sink_id": self.sink, "topics": [self.delays], "dead_letter_topic": self.dead},
            "topics": [self.orders],
            "app": {"id": "local-1", "host": "worker-3", "spark_version": "4.3.0"},
        }
        events = []
        while self._told_until_ms + EVERY_MS <= now_ms:
            number, self.told = self.told, self.told + 1
            at_ms = self._told_until_ms = self._told_until_ms + EVERY_MS
            events.append(
                common
                | {
                    "kind": "progress",
                    "at_ms": at_ms,
                    "lag": (behind := 900 + 40 * (number % 5)),
                    "progress": _progress(query, number, at_ms, self.orders, behind),
                    "commits": [
                        {
                            "batch_id": number,
                            "at_ms": at_ms,
                            "tasks": 2,
                            "rows": 8000 + number,
                            "duration_ms": 14,
                            "outcome": "committed",
                        }
                    ],
                }
            )
        return events


def _progress(
    query: dict[str, Any], number: int, at_ms: int, topic: str, behind: int
) -> dict[str, Any]:
    durations = {
        "latestOffset": 12,
        "getBatch": 1,
        "queryPlanning": 25 + number % 7,
        "walCommit": 40,
        "addBatch": 500 + 90 * (number % 6) + (900 if number == 20 else 0),
        "commitOffsets": 35,
    }
    total = sum(durations.values()) + 20
    return {
        "id": query["id"],
        "runId": query["run_id"],
        "name": query["name"],
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at_ms / 1000)),
        "batchId": number,
        "batchDuration": total,
        "durationMs": durations | {"triggerExecution": total},
        "numInputRows": 8000 + number,
        "inputRowsPerSecond": 4000.0 + 150 * (number % 4),
        "processedRowsPerSecond": 9000.0 + 200 * (number % 5),
        "stateOperators": [
            {
                "operatorName": "stateStoreSave",
                "numRowsTotal": 18_234,
                "numRowsUpdated": 120,
                "memoryUsedBytes": 18_000_000,
            }
        ],
        "sources": [
            {
                "description": f"HeadraceMicroBatchStream[{topic}]",
                "startOffset": f'{{"{topic}":{{"0":{number}}}}}',
                "endOffset": f'{{"{topic}":{{"0":{number + 1}}}}}',
                "latestOffset": f'{{"{topic}":{{"0":{number + 1 + behind}}}}}',
                "numInputRows": 8000 + number,
                "inputRowsPerSecond": 4000.0,
                "processedRowsPerSecond": 9000.0,
            }
        ],
        "sink": {"description": "headrace"},
    }
