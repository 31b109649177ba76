"""Reads the committed rows of a topic while a sink writes to it, by confluent-kafka, and notes what
could be seen when. It only looks; `exactly_once` judges."""

import time
from collections.abc import Callable
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from integration_tests.exactly_once.exactly_once import Row, Watched
from integration_tests.support.background import Background
from integration_tests.support.client_files import file_for, settings_for
from integration_tests.support.cluster_support import CLIENT_TIMEOUT_MS, DEADLINE_S, wait_until
from integration_tests.support.spark_support import consume
from storage_engine.client.cluster import LATEST
from storage_engine.core import ids
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.client_settings import connect

POLL_S = 0.2
FETCH_WAIT_MS = 100
"""A reader at the end hears of new rows at once, and looks again after so long."""


class CommittedReader(Background):
    """At work from its first look, which finds the topic empty, to the end of the block."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        value_of: Callable[[bytes], bytes] = bytes,
    ) -> None:
        """`value_of`: the value of a row by that of its record."""
        super().__init__()
        self._value_of = value_of
        self._servers = bootstrap_servers
        self.topic = topic
        self.watched = {partition: Watched() for partition in range(partitions)}
        self._consumer = Consumer(
            {
                **settings_for(bootstrap_servers),
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                "socket.timeout.ms": CLIENT_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            wait_until(self._has_looked_everywhere, f"a first look at {self.topic}")
        except BaseException:
            self.end()
            raise
        return self

    def end(self) -> None:
        super().end()
        self._consumer.close()

    def wait_until_stable(self, *, timeout_s: float = DEADLINE_S) -> None:
        """Until no transaction is open and all committed rows are read."""

        def stable() -> bool:
            self.check()
            ends = stable_ends(self._servers, self.topic, len(self.watched))
            return ends is not None and all(
                self.watched[partition].looks[-1:] == [end] for partition, end in ends.items()
            )

        wait_until(stable, f"{self.topic} is stable and read to its end", timeout_s=timeout_s)

    def _has_looked_everywhere(self) -> bool:
        self.check()
        return all(each.looks for each in self.watched.values())

    def _work(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(POLL_S)
            if message is not None:
                self._note(message)

    def _note(self, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        error = message.error()
        if error is None:
            assert isinstance(value, bytes) and partition is not None and offset is not None
            row = Row(offset, self._value_of(value))
            self.watched[partition].note_row(row, time.time())
        elif error.code() == KafkaError._PARTITION_EOF:
            assert partition is not None
            self.watched[partition].note_end(offset or 0)
        elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
            # What it has read is not there any more; brokers that are away pass.
            raise AssertionError(f"{self.topic}-{partition} can't be read on: {error}")


def stable_ends(bootstrap_servers: str, topic: str, partitions: int) -> dict[int, int] | None:
    """End offsets; None while a transaction is open, or a partition has no leader."""
    parts = [ids.TopicPartition(topic, number) for number in range(partitions)]
    try:
        with connect(
            bootstrap_servers, file_for(bootstrap_servers), request_timeout_ms=CLIENT_TIMEOUT_MS
        ) as cluster:
            ends = cluster.list_offsets(dict.fromkeys(parts, LATEST))
            stable = cluster.list_offsets(dict.fromkeys(parts, LATEST), isolation="read_committed")
    except HeadraceError:
        return None
    return {tp.partition: end for tp, end in ends.items()} if ends == stable else None


def read_all(
    bootstrap_servers: str,
    topic: str,
    partitions: int,
    value_of: Callable[[bytes], bytes] = bytes,
) -> dict[int, list[Row]]:
    """All committed rows, by a reader that was not there before."""
    rows: dict[int, list[Row]] = {partition: [] for partition in range(partitions)}
    for message in consume(bootstrap_servers, topic):
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert isinstance(value, bytes) and partition is not None and offset is not None
        rows[partition].append(Row(offset, value_of(value)))
    return rows
