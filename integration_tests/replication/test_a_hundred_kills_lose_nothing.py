"""R-LOG8, R-REP3: brokers are killed at random moments while they append, roll, delete and
compact; nothing that was acknowledged under acks=all is missing, misplaced or doubled.

HEADRACE_FAULTS=full: a hundred kills; else a few of them.
"""

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from integration_tests.support.cluster_support import (
    END_TOLD_MS,
    admin,
    create_topic,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.steady_writers import UNKNOWN_OFFSET, Written, key_of, parse, writing
from integration_tests.support.stored_logs import (
    Row,
    assert_files_are_sound,
    assert_replicas_agree,
    folders_of,
    log_bytes,
    newest_of,
    rows_in,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.local_cluster import LocalCluster

KILLS = 100 if ALL_FAULTS else 3
SEED = int(os.environ.get("HEADRACE_SEED", "20130101"))
LONGEST_PEACE_S = 1.5
"""Between a cluster that serves and the next kill."""
DELETE_RECORDS_EVERY = 4 if ALL_FAULTS else 2
"""Kills."""

BROKERS = (1, 2, 3)
PARTITIONS = 2
SEGMENT_BYTES = 40_000
RETENTION_BYTES = 160_000 if ALL_FAULTS else 80_000

SETTINGS = (
    ("log.cleaner.backoff.ms", "200"),
    ("log.retention.check.interval.ms", "500"),
    ("log.flush.interval.ms", "500"),
    ("log.flush.scheduler.interval.ms", "250"),
    ("log.flush.offset.checkpoint.interval.ms", "1000"),
)
SMALL = {"segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": "300"}
COMPACT = {**SMALL, "min.cleanable.dirty.ratio": "0.01"}
TOPICS = {
    "kept": SMALL,
    "deleted": {**SMALL, "retention.bytes": str(RETENTION_BYTES)},
    "compacted": {**COMPACT, "cleanup.policy": "compact"},
    "both": {
        **COMPACT,
        "cleanup.policy": "compact,delete",
        # Less than what compaction leaves and a segment that is being written.
        "retention.bytes": str(SEGMENT_BYTES),
    },
}
COMPACTED = ("compacted", "both")
SHORTENED = ("deleted", "both")
ALL = [TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)]


class Killer:
    """Kills and starts brokers, one, two in a row, or one that is just starting."""

    def __init__(self, cluster: LocalCluster, generator: random.Random) -> None:
        self._cluster = cluster
        self._generator = generator
        self.kills = 0

    def strike(self) -> None:
        victim, other = self._generator.sample(BROKERS, 2)
        manner = self._generator.random()
        self._kill(victim)
        if manner < 0.2:
            self._kill(other)
            self._cluster.start_broker(other)
        elif manner < 0.4:
            self._kill_while_it_starts(victim)
        self._cluster.start_broker(victim)

    def _kill(self, broker_id: int) -> None:
        self._cluster.kill_broker(broker_id)
        self.kills += 1

    def _kill_while_it_starts(self, broker_id: int) -> None:
        def start() -> None:
            # It ends while it starts, which is what is wanted.
            with contextlib.suppress(CommandError):
                self._cluster.start_broker(broker_id)

        before = self._pid(broker_id)
        starting = threading.Thread(target=start)
        starting.start()
        wait_until(lambda: self._pid(broker_id) not in (None, before), "the broker starts")
        time.sleep(self._generator.uniform(0.0, 1.0))
        self._kill(broker_id)
        starting.join()

    def _pid(self, broker_id: int) -> int | None:
        return self._cluster.state.broker(broker_id).pid


def delete_some(client: AdminClient, servers: str, generator: random.Random) -> tuple[int, int]:
    """Asks for the first half of a partition's records to be deleted: partition, offset. Whether
    it was done in time does not matter."""
    number = generator.randrange(PARTITIONS)
    first, end = watermarks(servers, TopicPartition("deleted", number))
    offset = (first + end) // 2
    partition = ConfluentPartition("deleted", number, offset)
    with contextlib.suppress(KafkaException):
        client.delete_records([partition], request_timeout=5)[partition].result(10)
    return number, offset


@contextlib.contextmanager
def consumer_of(servers: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "checker",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": END_TOLD_MS,
            "log_level": 0,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def watermarks(servers: str, tp: TopicPartition) -> tuple[int, int]:
    """The first and the end offset, as soon as the partition has a leader again."""
    with consumer_of(servers) as consumer:

        def ask() -> tuple[int, int] | None:
            try:
                return consumer.get_watermark_offsets(ConfluentPartition(*tp), timeout=60)
            except KafkaException as failure:
                # What librdkafka says of a partition without a leader.
                if failure.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                    return None
                raise

        found = wait_until(ask, f"the offsets of {tp} are told")
        assert found is not None
        return found


def is_shortened(servers: str, topic: str) -> bool:
    partitions = (TopicPartition(topic, number) for number in range(PARTITIONS))
    return any(watermarks(servers, each)[0] > 0 for each in partitions)


def read_all(servers: str, tp: TopicPartition) -> list[Row]:
    """As a foreign client reads it."""
    rows: list[Row] = []
    with consumer_of(servers) as consumer:
        consumer.assign([ConfluentPartition(*tp, OFFSET_BEGINNING)])
        while True:
            messages = consumer.consume(10_000, timeout=0.1)
            for message in messages:
                error = message.error()
                if error is None:
                    rows.append((message.offset(), message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return rows
                else:
                    raise KafkaException(error)


def assert_acknowledged_are_there(
    tp: TopicPartition, rows: list[Row], start_offset: int, written: Written
) -> None:
    """Each at the offset that its producer was told, unless it was to be removed."""
    at_offset = {offset: parse(value) for offset, _, value in rows}
    newest = newest_of(rows)
    wrong = []
    for number, offset in written.acknowledged.get(tp, {}).items():
        name = written.writer, number
        found = at_offset.get(offset)
        if offset == UNKNOWN_OFFSET or found == name:
            continue
        if found is None and tp.topic in SHORTENED and offset < start_offset:
            continue
        if found is None and tp.topic in COMPACTED:
            newest_offset, _ = newest.get(key_of(*name), (-1, b""))
            if newest_offset > offset:
                continue
        copies = [at for at, other in at_offset.items() if other == name]
        wrong.append(f"{name} acknowledged at {offset}, where {found} is; found at {copies}")
    assert not wrong, f"{tp}, which begins at {start_offset}: {len(wrong)} wrong: {wrong[:40]}"


def numbers_of(rows: list[Row], writer: str) -> list[int]:
    """In the order of the log."""
    parsed = (parse(value) for _, _, value in rows)
    return [number for name, number in parsed if name == writer]


def assert_order(tp: TopicPartition, rows: list[Row], written: dict[str, Written]) -> None:
    numbers = numbers_of(rows, "idempotent")
    assert numbers == sorted(set(numbers)), f"{tp}: doubled or out of order"
    if tp.topic != "kept":
        return
    assert numbers == sorted(written["idempotent"].acknowledged[tp])
    # One request at a time: what is repeated comes after its first copy, and all else in order.
    first_copies = list(dict.fromkeys(numbers_of(rows, "native")))
    assert first_copies == sorted(first_copies), f"{tp}: the native client's order is broken"
    for writer in written.values():
        missing = writer.acknowledged[tp].keys() - set(numbers_of(rows, writer.writer))
        assert not missing, f"{tp}: {sorted(missing)[:20]} of {writer.writer} are missing"


def assert_no_more_was_deleted_than_told(
    directory: Path, tp: TopicPartition, start_offset: int, told: int
) -> None:
    """A log that begins above what DeleteRecords was told has the bytes that retention leaves."""
    if tp.topic not in SHORTENED:
        assert start_offset == 0
    elif tp.topic == "deleted" and start_offset > told:
        for folder in folders_of(directory, tp):
            assert len(log_bytes(folder)) >= RETENTION_BYTES - SEGMENT_BYTES


def test_nothing_acknowledged_is_lost_by_kills_at_any_moment(tmp_path):
    generator = random.Random(SEED)
    told = dict.fromkeys(range(PARTITIONS), 0)
    with running_cluster(tmp_path, settings=SETTINGS) as cluster:
        servers = cluster.bootstrap_servers
        for topic, config in TOPICS.items():
            create_topic(
                cluster,
                topic,
                partitions=PARTITIONS,
                config={"min.insync.replicas": "2", **config},
            )
        client = admin(cluster)
        killer = Killer(cluster, generator)
        rounds = 0
        with writing(servers, ALL) as written:
            while killer.kills < KILLS:
                before = {name: writer.count() for name, writer in written.items()}
                time.sleep(generator.uniform(0.0, LONGEST_PEACE_S))
                killer.strike()
                rounds += 1
                if rounds % DELETE_RECORDS_EVERY == 0:
                    number, offset = delete_some(client, servers, generator)
                    told[number] = max(told[number], offset)
                if generator.random() < 0.5:
                    wait_until(
                        lambda before=before: all(
                            writer.count() > before[name] for name, writer in written.items()
                        ),
                        "every producer has been acknowledged something since the kill",
                    )
            for topic in SHORTENED:
                wait_until(lambda topic=topic: is_shortened(servers, topic), f"{topic} is shorter")
        for tp in ALL:
            wait_for_isr(client, tp.topic, 3, tp.partition)
        assert written["idempotent"].failures == []
        starts = {}
        for tp in ALL:
            rows = read_all(servers, tp)
            assert rows
            # Asked afterwards: retention may still be at work.
            starts[tp], _ = watermarks(servers, tp)
            for writer in written.values():
                assert_acknowledged_are_there(tp, rows, starts[tp], writer)
            assert_order(tp, rows, written)
        cluster.down()

    for tp in ALL:
        assert_replicas_agree(tmp_path, tp, compacts=tp.topic in COMPACTED)
        assert_no_more_was_deleted_than_told(
            tmp_path, tp, starts[tp], told[tp.partition] if tp.topic == "deleted" else 0
        )
    # What was to be exercised was: segments were rolled, deleted and compacted.
    for topic in SHORTENED:
        assert any(starts[tp] > 0 for tp in ALL if tp.topic == topic)
    compacted = TopicPartition("compacted", 0)
    acknowledged = sum(len(w.acknowledged.get(compacted, {})) for w in written.values())
    assert len(rows_in(folders_of(tmp_path, compacted)[0])) < acknowledged
    assert assert_files_are_sound(tmp_path) > 3 * len(ALL)
