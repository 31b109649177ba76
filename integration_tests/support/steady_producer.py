"""A steady confluent-kafka producer and the check of what it was promised.

Values are numbers from 0 on, so that loss, doubling and disorder can be told from the log alone.
"""

import time
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from integration_tests.support.background import Background
from integration_tests.support.cluster_support import CLIENT_TIMEOUT_MS, wait_until

READ_TIMEOUT_S = 60
MORE_RECORDS = 100


class SteadyProducer(Background):
    """librdkafka with its retries, acks=all and idempotent, numbered values, until told to stop."""

    def __init__(self, servers: str, topic: str, *, partition: int = 0, padding: int = 0) -> None:
        """`padding`: so many spaces follow each number, for records of that size."""
        super().__init__()
        self._padding = b" " * padding
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": "true",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "request.timeout.ms": CLIENT_TIMEOUT_MS,
                "socket.timeout.ms": CLIENT_TIMEOUT_MS,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._partition = partition
        self.acknowledged: dict[int, int] = {}
        """Number -> offset."""
        self.failures: list[str] = []

    def _work(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                self._producer.produce(
                    self._topic,
                    value=b"%d" % number + self._padding,
                    partition=self._partition,
                    on_delivery=self._delivered,
                )
            except BufferError:  # nobody takes anything for now
                self._producer.poll(0.1)
                continue
            number += 1
            self._producer.poll(0)
            if number % 20 == 0:
                time.sleep(0.005)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[int(message.value())] = message.offset()  # type: ignore[attr-defined]

    def end(self) -> None:
        """Also waits until all is acknowledged, or has failed."""
        super().end()
        assert self._producer.flush(120) == 0

    def finish(self) -> None:
        self.end()
        self.check()


def acknowledged_more(
    producer: SteadyProducer, timeout_s: float, *, records: int = MORE_RECORDS
) -> None:
    """Waits until so many records are acknowledged that were not before."""
    before = len(producer.acknowledged)
    wait_until(
        lambda: len(producer.acknowledged) > before + records,
        f"{records} more records are acknowledged",
        timeout_s=timeout_s,
    )


def read_numbers(servers: str, topic: str, *, partition: int = 0) -> list[tuple[int, int]]:
    """(offset, number) of every record below the end at the time of the call."""
    # Nothing is committed: that would wait for the group's coordinator, which may be dead.
    settings = {"group.id": "checker", "enable.auto.commit": False, "log_level": 0}
    whole = TopicPartition(topic, partition, OFFSET_BEGINNING)
    consumer, low, high = consumer_and_ends({"bootstrap.servers": servers, **settings}, whole)
    consumer.assign([whole])
    records: list[tuple[int, int]] = []
    while not records or records[-1][0] < high - 1:
        # As many as are left: it waits for the last one that is asked for, however long.
        left = high - (records[-1][0] + 1 if records else low)
        messages = consumer.consume(min(left, 10_000), timeout=READ_TIMEOUT_S)
        assert messages, f"reading stopped at {len(records)} of {high}"
        for message in messages:
            assert message.error() is None
            records.append((message.offset(), int(message.value())))
    consumer.close()
    return records


_LATE = (
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)


def consumer_and_ends(
    settings: dict[str, Any], partition: TopicPartition
) -> tuple[Consumer, int, int]:
    """A consumer, and the first and the next offset of the partition.

    Right after an election a broker may not have heard of the leader yet. librdkafka then keeps
    that answer and does not ask again for minutes, so each attempt takes a consumer of its own.
    """
    until_s = time.monotonic() + READ_TIMEOUT_S
    while True:
        consumer = Consumer(settings)
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=READ_TIMEOUT_S)
            return consumer, low, high
        except KafkaException as failure:
            consumer.close()
            if failure.args[0].code() not in _LATE or time.monotonic() > until_s:
                raise
            time.sleep(0.1)


def check_kept(servers: str, topic: str, producer: SteadyProducer, *, partition: int = 0) -> None:
    """Everything acknowledged is there at its offset, in order, once, and no send failed."""
    producer.finish()
    assert producer.failures == []
    records = read_numbers(servers, topic, partition=partition)
    assert [offset for offset, _ in records] == list(range(len(records)))
    assert [number for _, number in records] == list(range(len(records)))
    at_offset = dict(records)
    assert len(producer.acknowledged) == len(records)
    for number, offset in producer.acknowledged.items():
        assert at_offset[offset] == number


class CheckingConsumer(Background):
    """Reads along while the producer writes: each offset comes next, and has the number that it
    must have, since one idempotent producer writes the numbers from 0 on.
    """

    def __init__(self, servers: str, topic: str, *, partition: int = 0) -> None:
        super().__init__()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "checker",
                "enable.auto.commit": False,
                "socket.timeout.ms": CLIENT_TIMEOUT_MS,
                "log_level": 0,
            }
        )
        # Not OFFSET_BEGINNING: where the leader changes while librdkafka (2.16) asks for that
        # offset, the answer to its first question, when it comes late, makes it begin anew.
        self._consumer.assign([TopicPartition(topic, partition, 0)])
        self.next_offset = 0
        """Where it has come to."""
        self.wrong: list[str] = []

    def has_read(self, count: int) -> bool:
        """Return True when it has read as many records; raises what it has died of."""
        self.check()
        return self.next_offset >= count

    def end(self) -> None:
        super().end()
        self._consumer.close()

    def _work(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1000, timeout=0.2):
                if message.error() is not None:
                    continue  # librdkafka tells of brokers that are away
                offset = message.offset()
                assert offset is not None
                if (offset, int(message.value())) != (self.next_offset,) * 2:
                    self.wrong.append(
                        f"offset {offset} has {message.value()!r}, expected number and offset "
                        f"{self.next_offset}"
                    )
                self.next_offset = offset + 1
