"""What a mirror is judged by: records of many kinds in a source, and all that readers of a topic
see. Both by a client that we did not write.
"""

import contextlib
import random
import time
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from integration_tests.support.cluster_support import DEADLINE_S, END_TOLD_MS

WAIT_S = 60.0


class Seen(NamedTuple):
    """A record, but for its offset."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: tuple[int, int]
    """Type, and milliseconds."""


class Filler:
    """Writes records with and without keys, values and headers, of times that do not ascend, in
    large and small batches of several codecs; some in transactions, of which some are aborted."""

    def __init__(self, servers: str, topic: str, partitions: int, seed: int) -> None:
        self._servers = servers
        self._topic = topic
        self._partitions = partitions
        self._random = random.Random(seed)
        self._written = 0
        self._plain = [
            Producer(
                {
                    "bootstrap.servers": servers,
                    "compression.type": codec,
                    "linger.ms": 5,
                    "log_level": 0,
                }
            )
            for codec in ("none", "lz4", "zstd")
        ]
        self._transactional = Producer(
            {"bootstrap.servers": servers, "transactional.id": f"filler-{topic}", "log_level": 0}
        )
        self._transactional.init_transactions(WAIT_S)

    def fill(self, count: int) -> None:
        """About so many more, all acknowledged."""
        for part in range(3):
            for producer in self._plain:
                for _ in range(count // 9):
                    self._write(producer)
                assert producer.flush(WAIT_S) == 0
            self._transactional.begin_transaction()
            for _ in range(20):
                self._write(self._transactional)
            if part == 1:
                self._transactional.commit_transaction(WAIT_S)
            else:
                assert self._transactional.flush(WAIT_S) == 0
                self._transactional.abort_transaction(WAIT_S)

    def _write(self, producer: Producer) -> None:
        pick = self._random
        number, self._written = self._written, self._written + 1
        record: dict[str, Any] = {
            "key": pick.choice([None, b"", b"key-%d" % (number % 50)]),
            "value": pick.choice(
                [None, b"", b"%d:" % number + pick.randbytes(pick.randrange(200))]
            ),
            "headers": pick.choice([[], [("n", b"%d" % number), ("n", None), ("é", b"\xff")]]),
            "timestamp": 1_700_000_000_000 + pick.randrange(1_000_000),
            "partition": pick.randrange(self._partitions),
        }
        while True:
            try:
                producer.produce(self._topic, **record)
            except BufferError:
                producer.poll(0.1)
            else:
                producer.poll(0)
                return


def committed_records(servers: str, topic: str, partition: int) -> list[tuple[int, Seen]]:
    """Offset and content of all that is there now for read_committed; waits until no transaction is
    open below the end."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "judge",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": END_TOLD_MS,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }
    found: list[tuple[int, Seen]] = []
    with contextlib.closing(Consumer(settings)) as consumer:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        consumer.assign([TopicPartition(topic, partition, low)])
        deadline = time.monotonic() + DEADLINE_S + (high - low) / 1000
        position = low
        while position < high:
            assert time.monotonic() < deadline, f"{topic}-{partition} stops at {position}"
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                headers: Any = message.headers() or []
                content = Seen(message.key(), message.value(), tuple(headers), message.timestamp())
                found.append((message.offset(), content))
            elif error.code() == KafkaError._PARTITION_EOF:
                # Beyond markers and aborted records, of which no message tells.
                position = message.offset() or 0
            else:
                raise AssertionError(str(error))
    return found


def committed_offsets(servers: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Of a group, by partition."""
    with contextlib.closing(Consumer({"bootstrap.servers": servers, "group.id": group})) as asked:
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        rows = asked.committed(wanted, timeout=WAIT_S)
    return {row.partition: row.offset for row in rows if row.offset >= 0}


def commit_offsets(servers: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """As a consumer of that group that has read up to there and has gone."""
    settings = {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False}
    with contextlib.closing(Consumer(settings)) as consumer:
        rows = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
        consumer.commit(offsets=rows, asynchronous=False)
