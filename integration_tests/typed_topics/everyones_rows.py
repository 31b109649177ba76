"""Writers and readers of one typed topic that is everybody's: clients that we did not write send
and get JSON, ours columns. Every row says by whom it is and its number among these, so that loss,
doubling and disorder can be told from the rows alone.

A row's key is its writer and its partition; the partition is chosen here, as clients differ in how
they choose it.
"""

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition as PythonPartition

from integration_tests.support.background import Background
from integration_tests.support.cluster_support import CLIENT_TIMEOUT_MS, wait_until
from integration_tests.support.java_clients import SHORT_LIVED
from storage_engine.client import Consumer, Producer, TopicPartition
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.protocol.typed.arrow_types import arrow_schema
from storage_engine.tests.protocol.typed.json_support import parsed, plain_json, same

DDL = (
    "writer STRING NOT NULL, number BIGINT NOT NULL, fare DECIMAL(12,2), ratio DOUBLE,"
    " at TIMESTAMP, day DATE, raw BINARY, tags ARRAY<STRING>,"
    " place STRUCT<x: INT, name: STRING>, counts MAP<STRING, INT>"
)
SCHEMA = new_schema(parse_ddl(DDL), ["writer"])
COLUMNS = SCHEMA.latest.visible
ARROW = arrow_schema(COLUMNS)
PARTITIONS = 2

PACE_S = 0.03
LIMIT_S = 120.0
DELIVERY_MS = 120_000


class Seen(NamedTuple):
    """A row as a client that takes JSON gets it."""

    partition: int
    offset: int
    key: bytes
    value: bytes


def row(writer: str, number: int) -> dict[str, Any]:
    """The row as Arrow's values; each kind of value comes, and each is null at times."""
    return {
        "writer": f"{writer}-{number % PARTITIONS}",
        "number": number,
        "fare": None if number % 11 == 3 else Decimal(number * 25) / 100,
        "ratio": number / 7 if number % 13 else float("inf"),
        "at": datetime(2026, 1, 31, 12, tzinfo=UTC).replace(microsecond=number),
        "day": date(2026, 1, 1 + number % 31) if number % 3 else None,
        "raw": bytes([number % 256, 0, 255])[: number % 4],
        "tags": [f"tag {number}", None, 'q"\\ \n ü'] if number % 5 else None,
        "place": {"x": number, "name": None} if number % 7 else None,
        "counts": [("a", number), ("", None)][: number % 3],
    }


def as_json(values: dict[str, Any]) -> dict[str, Any]:
    """The row as JSON has it, decimals aside."""
    return {column.name: plain_json(values[column.name], column.type) for column in COLUMNS}


def text(writer: str, number: int) -> bytes:
    """The row as a producer sends it; what is null is left out."""
    content = {name: value for name, value in as_json(row(writer, number)).items() if value != []}
    found = {name: value for name, value in content.items() if value is not None}
    return json.dumps(found, default=float).encode()


def is_row(value: bytes, writer: str, number: int) -> bool:
    """Whether a record has the values of this row."""
    return same(parsed(value), as_json(row(writer, number)))


# --- writers --------------------------------------------------------------------------------------


class RowWriter(Background):
    """Writes rows until it is told to stop. What it has written then is acknowledged."""

    name: ClassVar[str]

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self.servers = servers
        self.topic = topic
        self.written = 0
        """Rows that were acknowledged, or at least handed over where nobody says more."""
        self.places: dict[int, tuple[int, int]] = {}
        """Partition and offset of a row, by its number, where its client tells them."""

    def _numbers(self) -> Iterator[int]:
        number = 0
        while not self._stop.is_set():
            yield number
            number += 1
            time.sleep(PACE_S)

    def _noted(self, number: int, partition: int, offset: int) -> None:
        assert number not in self.places
        self.places[number] = partition, offset
        self.written += 1


class ByLibrdkafka(RowWriter):
    """confluent-kafka, idempotent."""

    name = "librdkafka"

    def _work(self) -> None:
        producer = ConfluentProducer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "zstd",
                "message.timeout.ms": DELIVERY_MS,
                "request.timeout.ms": CLIENT_TIMEOUT_MS,
                "socket.timeout.ms": CLIENT_TIMEOUT_MS,
                "log_level": 0,
            }
        )

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            number = json.loads(message.value())["number"]
            self._noted(number, message.partition(), message.offset())

        for number in self._numbers():
            producer.produce(
                self.topic,
                text(self.name, number),
                partition=number % PARTITIONS,
                on_delivery=delivered,
            )
            producer.poll(0)
        assert producer.flush(LIMIT_S) == 0


class ByKafkaPython(RowWriter):
    """kafka-python, idempotent; with keys."""

    name = "kafka-python"

    def _work(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.servers.split(","),
            enable_idempotence=True,
            linger_ms=20,
            delivery_timeout_ms=DELIVERY_MS,
            request_timeout_ms=CLIENT_TIMEOUT_MS,
            compression_type="gzip",
        )
        sent = []
        for number in self._numbers():
            partition = number % PARTITIONS
            key = f"{self.name}-{partition}".encode()
            future = producer.send(
                self.topic, text(self.name, number), key=key, partition=partition
            )
            future.add_callback(
                lambda told, number=number: self._noted(number, told.partition, told.offset)
            )
            sent.append(future)
        for future in sent:
            future.get(LIMIT_S)
        producer.close()


class ByAiokafka(RowWriter):
    """aiokafka, idempotent."""

    name = "aiokafka"

    def _work(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self.servers,
            enable_idempotence=True,
            linger_ms=20,
            request_timeout_ms=DELIVERY_MS,
        ) as producer:
            sent = []
            number = 0
            while not self._stop.is_set():
                value = text(self.name, number)
                future = await producer.send(self.topic, value, partition=number % PARTITIONS)
                future.add_done_callback(
                    lambda told, number=number: self._noted(
                        number, told.result().partition, told.result().offset
                    )
                )
                sent.append(future)
                number += 1
                await asyncio.sleep(PACE_S)
            await asyncio.wait_for(asyncio.gather(*sent), LIMIT_S)


class ByKcat(RowWriter):
    """kcat, one process a partition. It does not say where the rows are."""

    name = "kcat"

    def _work(self) -> None:
        options = ("enable.idempotence=true", f"message.timeout.ms={DELIVERY_MS}", "linger.ms=20")
        settings = [part for option in options for part in ("-X", option)]
        command = ["kcat", "-P", "-q", "-b", self.servers, "-t", self.topic, *settings]
        processes = [
            subprocess.Popen(
                [*command, "-p", str(partition)], stdin=subprocess.PIPE, stderr=subprocess.PIPE
            )
            for partition in range(PARTITIONS)
        ]
        try:
            for number in self._numbers():
                pipe = processes[number % PARTITIONS].stdin
                assert pipe is not None
                pipe.write(text(self.name, number) + b"\n")
                pipe.flush()
                self.written += 1
            for process in processes:
                _, said = process.communicate(timeout=LIMIT_S)
                assert process.returncode == 0, said
        finally:
            for process in processes:
                process.kill()
                process.wait()


class BySendTable(RowWriter):
    """Our producer, a few rows a table."""

    name = "send_table"
    ROWS = 5

    def _work(self) -> None:
        settings = {"bootstrap.servers": self.servers, "delivery.timeout.ms": DELIVERY_MS}
        sent = []
        with Producer({**settings, "compression.type": "lz4"}) as producer:
            for turn in self._numbers():
                numbers = range(turn * self.ROWS, (turn + 1) * self.ROWS)
                rows = pa.Table.from_pylist([row(self.name, n) for n in numbers], ARROW)
                partitions = pa.array([n % PARTITIONS for n in numbers], pa.int32())
                table = rows.append_column("_partition", partitions)
                sent.append(producer.send_table(self.topic, table))
                self.written = sum(each.done() for each in sent) * self.ROWS
                time.sleep(PACE_S * self.ROWS)
            producer.flush()
            self.written = sum(each.result(LIMIT_S).rows for each in sent)


class ByJava(RowWriter):
    """Kafka's client for Java, a process."""

    name = "java"
    path: ClassVar[str]
    """The class path."""

    def _work(self) -> None:
        process = subprocess.Popen(
            [*_java(self.path), "write", self.servers, self.topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None and process.stdout is not None

        def listen(lines: Iterable[bytes]) -> None:
            for line in lines:
                self._noted(*map(int, line.split()))

        listener = threading.Thread(target=listen, args=(process.stdout,))
        listener.start()
        try:
            for number in self._numbers():
                line = b"%d\t%s\n" % (number % PARTITIONS, text(self.name, number))
                process.stdin.write(line)
                process.stdin.flush()
            process.stdin.close()
            assert process.wait(LIMIT_S) == 0
        finally:
            process.kill()
            process.wait()
            listener.join()
            process.stdout.close()


FOREIGN_WRITERS: tuple[type[RowWriter], ...] = (ByLibrdkafka, ByKafkaPython, ByAiokafka, ByKcat)


# --- readers --------------------------------------------------------------------------------------


def by_kafka_python(servers: str, topic: str, ends: Sequence[int]) -> list[Seen]:
    consumer = KafkaConsumer(
        bootstrap_servers=servers.split(","), consumer_timeout_ms=int(LIMIT_S * 1000)
    )
    consumer.assign([PythonPartition(topic, p) for p in range(len(ends))])
    consumer.seek_to_beginning()
    found = []
    for _ in range(sum(ends)):
        record = next(consumer)
        found.append(Seen(record.partition, record.offset, record.key, record.value))
    consumer.close()
    return found


def by_aiokafka(servers: str, topic: str, ends: Sequence[int]) -> list[Seen]:
    async def read() -> list[Seen]:
        found: list[Seen] = []
        partitions = [AioPartition(topic, p) for p in range(len(ends))]
        async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
            consumer.assign(partitions)
            await consumer.seek_to_beginning()
            while len(found) < sum(ends):
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [Seen(r.partition, r.offset, r.key, r.value) for r in records]
        return found

    return asyncio.run(asyncio.wait_for(read(), LIMIT_S))


def by_kcat(servers: str, topic: str, ends: Sequence[int]) -> list[Seen]:
    command = ["kcat", "-C", "-q", "-e", "-b", servers, "-t", topic, "-o", "beginning"]
    form = ("-f", "%p\t%o\t%k\t%s\n")
    output = subprocess.run([*command, *form], capture_output=True, timeout=LIMIT_S, check=True)
    return _seen_in_lines(output.stdout)


def by_our_poll(servers: str, topic: str, ends: Sequence[int]) -> list[Seen]:
    found: list[Seen] = []
    with Consumer({"bootstrap.servers": servers}) as consumer:
        consumer.assign([TopicPartition(topic, p) for p in range(len(ends))])
        consumer.seek_to_beginning()

        def polled() -> bool:
            for each in consumer.poll(500):
                assert each.key is not None and each.value is not None
                found.append(Seen(each.partition, each.offset, each.key, each.value))
            return len(found) >= sum(ends)

        wait_until(polled, f"our consumer has {sum(ends)} records of {topic}", timeout_s=LIMIT_S)
    return found


def by_java(path: str, servers: str, topic: str) -> list[Seen]:
    output = subprocess.run(
        [*_java(path), "read", servers, topic], capture_output=True, timeout=LIMIT_S, check=True
    )
    return _seen_in_lines(output.stdout)


def java_source() -> Path:
    return Path(__file__).with_name("JavaRows.java")


def _java(path: str) -> list[str]:
    return ["java", *SHORT_LIVED, "-Xmx256m", "-cp", path, "JavaRows"]


def _seen_in_lines(output: bytes) -> list[Seen]:
    lines = [line.split(b"\t", 3) for line in output.splitlines()]
    return [Seen(int(p), int(offset), key, value) for p, offset, key, value in lines]


class LiveLibrdkafka(Background):
    """confluent-kafka, beside those who write."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._settings = {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "socket.timeout.ms": CLIENT_TIMEOUT_MS,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
        self._topic = topic
        self.found: list[Seen] = []

    def _work(self) -> None:
        consumer = ConfluentConsumer(self._settings)
        # Not OFFSET_BEGINNING: see CheckingConsumer.
        consumer.assign([ConfluentPartition(self._topic, p, 0) for p in range(PARTITIONS)])
        while not self._stop.is_set():
            for each in consumer.consume(1000, timeout=0.2):
                if each.error() is None:  # it tells of brokers that are away
                    self.found.append(
                        Seen(each.partition(), each.offset(), each.key(), each.value())
                    )
        consumer.close()


class LiveColumns(Background):
    """Our consumer, beside those who write: the columns with their places."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._settings = {"bootstrap.servers": servers, "fetch.max.wait.ms": 100}
        self._topic = topic
        self.found: list[dict[str, Any]] = []

    def _work(self) -> None:
        columns = ["_partition", "_offset", *ARROW.names]
        with Consumer(self._settings) as consumer:
            consumer.assign([TopicPartition(self._topic, p) for p in range(PARTITIONS)])
            consumer.seek_to_beginning()
            while not self._stop.is_set():
                self.found += consumer.poll_table(200, columns=columns).to_pylist()


# --- what must be so ------------------------------------------------------------------------------


def check_each_row_is_there_once_and_in_order(
    seen: Sequence[Seen], written: dict[str, int]
) -> None:
    """`seen` are all rows by partition and offset, of the writers that wrote so many."""
    following = {(name, p): p for name in written for p in range(PARTITIONS)}
    ends = [0] * PARTITIONS
    for each in seen:
        assert each.offset == ends[each.partition]
        ends[each.partition] += 1
        writer = each.key.decode().rpartition("-")[0]
        number = following[writer, each.partition]
        assert each.key.decode() == f"{writer}-{each.partition}"
        assert is_row(each.value, writer, number), (each, number)
        following[writer, each.partition] = number + PARTITIONS
    for name, count in written.items():
        assert sum(following[name, p] // PARTITIONS for p in range(PARTITIONS)) == count, name


def check_columns_are_the_json(columns: Sequence[dict[str, Any]], seen: Sequence[Seen]) -> None:
    """Both are sorted by partition and offset."""
    assert len(columns) == len(seen)
    for values, each in zip(columns, seen, strict=True):
        assert (values["_partition"], values["_offset"]) == (each.partition, each.offset)
        assert same(parsed(each.value), as_json(values)), (each, values)
