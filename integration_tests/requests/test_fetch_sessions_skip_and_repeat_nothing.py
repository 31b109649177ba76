"""KIP-227: a client that fetches in sessions (kafka-python; librdkafka has none) gets every record
once and in order, while partitions come, pause, are sought and forgotten, a leader is killed,
sessions are evicted and another broker is restarted. The replicas, which follow in sessions too,
end up equal.
"""

import logging
import re

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from storage_engine.tools.cli import main
from storage_engine.tools.local.local_cluster import LocalCluster

TOPIC = "sessions"
PARTITIONS = 6
ROUND = 40
"""Records of each partition that are written in one go."""


class Log:
    """What was written, and a consumer that takes note of what it reads."""

    def __init__(self, cluster: LocalCluster) -> None:
        servers = cluster.bootstrap_servers
        self.written = 0
        """Of each partition."""
        self.positions: dict[int, int] = {}
        """Records read of each assigned partition."""
        self._producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        self.consumer = KafkaConsumer(
            bootstrap_servers=servers.split(","), enable_auto_commit=False, group_id=None,
            auto_offset_reset="earliest", fetch_max_wait_ms=100, max_poll_records=30,
            metadata_max_age_ms=2000, retry_backoff_ms=50, reconnect_backoff_max_ms=500,
            request_timeout_ms=15_000,
        )  # fmt: skip

    def write(self) -> None:
        def delivered(error: object, _message: object) -> None:
            assert error is None

        for number in range(self.written, self.written + ROUND):
            for partition in range(PARTITIONS):
                self._producer.produce(
                    TOPIC, b"%d" % number, partition=partition, on_delivery=delivered
                )
        assert self._producer.flush(60) == 0
        self.written += ROUND

    def assign(self, *partitions: int) -> None:
        """The position of those that stay is kept; new ones begin at the beginning."""
        self.consumer.assign([TopicPartition(TOPIC, partition) for partition in partitions])
        for partition in partitions:
            at = self.positions.setdefault(partition, 0)
            self.consumer.seek(TopicPartition(TOPIC, partition), at)
        for gone in set(self.positions) - set(partitions):
            del self.positions[gone]

    def read(self) -> None:
        """One poll; every record must be the next one of its partition."""
        for tp, records in self.consumer.poll(timeout_ms=200).items():
            for record in records:
                assert record.offset == self.positions[tp.partition]
                assert record.value == b"%d" % record.offset
                self.positions[tp.partition] += 1

    def read_all(self, *, but: frozenset[int] = frozenset()) -> None:
        """Until every partition, but those, is at its end."""

        def at_end() -> bool:
            self.read()
            ends = [at for partition, at in self.positions.items() if partition not in but]
            return all(at == self.written for at in ends)

        wait_until(at_end, f"all {self.written} are read: {self.positions}")

    def has_session(self) -> bool:
        """Whether some broker has a session of the consumer by now."""
        self.read()
        handlers = self.consumer._fetcher._session_handlers.values()
        return any(each.next_metadata.session_id for each in handlers)


def _evicting(caplog: pytest.LogCaptureFixture) -> set[int]:
    """The brokers that no longer knew a session of the consumer."""
    found = (
        re.match(r"Node (\S+) was unable .*FetchSessionIdNotFound", record.getMessage())
        for record in caplog.records
    )
    return {int(match[1]) for match in found if match}


def test_a_client_with_sessions_reads_everything_once(tmp_path, caplog):
    caplog.set_level(logging.INFO, "kafka.consumer.fetcher")
    # Two followers and the consumer. A follower that comes back has lost its session, and takes the
    # consumer's slot for a new one.
    settings = (("max.incremental.fetch.session.cache.slots", "3"),)
    with running_cluster(tmp_path, settings=settings) as cluster:
        client = admin(cluster)
        create_topic(cluster, TOPIC, partitions=PARTITIONS)
        log = Log(cluster)
        log.write()
        log.assign(0, 1, 2, 3)
        log.read_all()
        wait_until(log.has_session, "there is a session")
        # Partitions come, and others go.
        log.assign(1, 2, 3, 4, 5)
        log.write()
        log.read_all()
        paused = TopicPartition(TOPIC, 1)
        log.consumer.pause(paused)
        log.write()
        log.read_all(but=frozenset({1}))
        assert log.positions[1] == log.written - ROUND
        log.consumer.resume(paused)
        log.read_all()
        log.consumer.seek(TopicPartition(TOPIC, 2), 7)
        log.positions[2] = 7
        log.write()
        log.read_all()

        leader = leader_of(client, TOPIC, 3)
        cluster.kill_broker(leader)
        wait_until(lambda: leader_of(client, TOPIC, 3) != leader, "another broker leads")
        log.write()
        log.read_all()
        cluster.start_broker(leader)
        for partition in range(PARTITIONS):
            wait_for_isr(client, TOPIC, 3, partition)
        log.write()
        log.read_all()

        def evicted() -> set[int]:
            log.read()
            return _evicting(caplog) - {leader}

        wait_until(evicted, "a broker that has not been restarted has evicted a session")
        # This one hands its partitions over first, and forgets all sessions.
        cluster.stop_broker(leader % 3 + 1)
        cluster.start_broker(leader % 3 + 1)
        log.write()
        log.read_all()
        for partition in range(PARTITIONS):
            wait_for_isr(client, TOPIC, 3, partition)
        log.consumer.close()
        servers = cluster.bootstrap_servers
        assert main(["verify-replicas", "--bootstrap-server", servers, "--topics", TOPIC]) == 0
