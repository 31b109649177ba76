"""What goes on in a cluster while it is backed up: transactions over several partitions, of clients
that we did not write and of ours, records outside of transactions, and a copier with a group."""

import itertools
import time
from collections import Counter

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from integration_tests.support.background import Background
from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import wait_until
from integration_tests.support.transactional_clients import Confluent
from storage_engine.client import Producer as OurProducer
from storage_engine.client.cluster import LATEST, Cluster
from storage_engine.core.ids import TopicPartition as LogPartition

SPREAD, INPUT, OUTPUT, GROUP = "spread", "input", "output", "copier"
PARTITIONS = 4
ABORT_EVERY = 5
WAIT_S = 60.0
TRANSACTION_MS = 15_000
"""How long a restored cluster waits for the end of a transaction that was open."""


class Spreader(Background):
    """Transactions with a record in each partition, or in some; every fifth is aborted."""

    def __init__(self, bootstrap_servers: str, number: int, *, is_ours: bool) -> None:
        super().__init__()
        self._servers = bootstrap_servers
        self.name = f"spreader-{number}"
        self._is_ours = is_ours
        self.committed: dict[bytes, frozenset[int]] = {}
        """The transactions whose commit was acknowledged, with their partitions."""

    def _work(self) -> None:
        if self._is_ours:
            settings = {
                "bootstrap.servers": self._servers,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_MS,
            }
            with OurProducer(settings) as producer:
                producer.init_transactions()
                for turn in itertools.count():
                    producer.begin_transaction()
                    value, partitions = self._turn(turn)
                    for partition in partitions:
                        producer.send(SPREAD, value, partition=partition)
                    if turn % ABORT_EVERY == 3:
                        producer.abort_transaction()
                    else:
                        producer.commit_transaction()
                        self.committed[value] = partitions
                    if self._stop.is_set():
                        return
        theirs = Confluent(self._servers, self.name, TRANSACTION_MS)
        for turn in itertools.count():
            theirs.begin()
            value, partitions = self._turn(turn)
            for partition in partitions:
                theirs.write(SPREAD, partition, value)
            if turn % ABORT_EVERY == 3:
                theirs.abort()
            else:
                theirs.commit()
                self.committed[value] = partitions
            if self._stop.is_set():
                return

    def _turn(self, turn: int) -> tuple[bytes, frozenset[int]]:
        chosen = range(PARTITIONS) if turn % 3 else range(turn % PARTITIONS + 1)
        return b"%s of %d" % (self.name.encode(), turn), frozenset(chosen)


class Writer(Background):
    """Numbers, outside of transactions."""

    def __init__(self, bootstrap_servers: str, first: int = 0) -> None:
        super().__init__()
        self._producer = Producer({**settings_for(bootstrap_servers), "acks": "all"})
        self._numbers = itertools.count(first)
        self.acknowledged: set[int] = set()

    def _work(self) -> None:
        while not self._stop.is_set():
            number = next(self._numbers)
            self._producer.produce(
                INPUT,
                b"%d" % number,
                partition=number % 2,
                on_delivery=lambda error, _, number=number: self._delivered(error, number),
            )
            self._producer.poll(0)
            time.sleep(0.002)
        assert self._producer.flush(WAIT_S) == 0

    def _delivered(self, error: KafkaError | None, number: int) -> None:
        if error is None:
            self.acknowledged.add(number)


class Copier(Background):
    """Copies INPUT to OUTPUT in transactions that commit the offsets of its group, too."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__()
        self._settings = settings_for(bootstrap_servers)
        self.copied = 0

    def _work(self) -> None:
        producer = Producer(
            {
                **self._settings,
                "transactional.id": GROUP,
                "linger.ms": 0,
                "transaction.timeout.ms": TRANSACTION_MS,
            }
        )
        producer.init_transactions(WAIT_S)
        consumer = Consumer(
            {
                **self._settings,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
            }
        )
        tps = [TopicPartition(INPUT, number) for number in range(2)]
        known = consumer.committed(tps, WAIT_S)
        at = {each.partition: max(0, each.offset) for each in known}
        consumer.assign([TopicPartition(INPUT, number, at[number]) for number in at])
        while not self._stop.is_set():
            found = [each for each in consumer.consume(20, 0.1) if each.error() is None]
            if not found:
                continue
            producer.begin_transaction()
            for each in found:
                number, offset = each.partition(), each.offset()
                assert number is not None and offset is not None
                producer.produce(OUTPUT, each.value(), partition=number)
                at[number] = offset + 1
            offsets = [TopicPartition(INPUT, number, at[number]) for number in at]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
            producer.commit_transaction(WAIT_S)
            self.copied += len(found)
        consumer.close()


def committed_values(bootstrap_servers: str, topic: str, partitions: int) -> dict[int, list[bytes]]:
    """What a reader of committed records sees, to the end of each partition, once what was open is
    aborted."""
    latest = dict.fromkeys((LogPartition(topic, number) for number in range(partitions)), LATEST)
    with Cluster(bootstrap_servers) as cluster:
        wait_until(
            lambda: (
                cluster.list_offsets(latest, isolation="read_committed")
                == cluster.list_offsets(latest)
            ),
            "no transaction is open",
            timeout_s=2 * WAIT_S,
        )
    consumer = Consumer(
        {
            **settings_for(bootstrap_servers),
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    seen: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    left = set(seen)
    deadline_s = time.monotonic() + 2 * WAIT_S
    while left:
        assert time.monotonic() < deadline_s, f"{topic}: no end of partitions {left}"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            left.discard(message.partition())
        else:
            partition, value = message.partition(), message.value()
            assert partition is not None and isinstance(value, bytes)
            seen[partition].append(value)
    consumer.close()
    return seen


def check_spread(seen: dict[int, list[bytes]], before: dict[bytes, frozenset[int]]) -> set[bytes]:
    """Each transaction once, in all of its partitions or in none; those of `before` are there.
    Return all that are there."""
    places: dict[bytes, set[int]] = {}
    for partition, values in seen.items():
        twice = [value for value, count in Counter(values).items() if count > 1]
        assert not twice, f"in partition {partition} twice: {twice[:3]}"
        for value in values:
            places.setdefault(value, set()).add(partition)
    for value, there in places.items():
        turn = int(value.rpartition(b" ")[2])
        wanted = set(range(PARTITIONS) if turn % 3 else range(turn % PARTITIONS + 1))
        assert there == wanted, f"{value!r} is in {there} of {wanted}"
        assert turn % ABORT_EVERY != 3, f"{value!r} was aborted"
    missing = [value for value in before if value not in places]
    assert not missing, f"missing: {missing[:5]}"
    return set(places)
