"""KIP-447 with real processes and a client that we did not write: what a member of a group reads,
and what it writes of that, are one transaction, also when the group's coordinator is killed."""

import random
from contextlib import closing

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.structs import OffsetAndMetadata

from integration_tests.groups.group_members import ConfluentMember, poll_until
from integration_tests.support.cluster_support import (
    COORDINATOR_PARTITIONS,
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.transactional_clients import Reader
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tests.sampling import ALL_FAULTS, SEED, in_full
from storage_engine.tools.local.local_cluster import LocalCluster

OFFSETS = "__consumer_offsets"
SOURCE_PARTITIONS = 2
RECORDS = 120
AT_ONCE = 10
WAIT_S = 60.0
KILLS = 6 if ALL_FAULTS else 1


class Copier:
    """Copies the numbers of one topic into another, transaction by transaction."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.source, self.target = f"{name}-in", f"{name}-out"
        create_topic(cluster, self.source, partitions=SOURCE_PARTITIONS)
        create_topic(cluster, self.target, config={"min.insync.replicas": "2"})
        filler = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        for number in range(RECORDS):
            filler.produce(self.source, b"%d" % number, partition=number % SOURCE_PARTITIONS)
        assert filler.flush(WAIT_S) == 0
        self.member = ConfluentMember(
            cluster.bootstrap_servers, name, self.source, isolation_level="read_committed"
        )
        self.producer = self.new_producer()

    @property
    def consumer(self) -> Consumer:
        return self.member.consumer

    def new_producer(self) -> Producer:
        """With the same id, as a program has that is started again."""
        made = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "transactional.id": self.name,
                "log_level": 0,
            }
        )
        made.init_transactions(WAIT_S)
        return made

    def read(self) -> list[bytes]:
        """Some numbers; none only at the end."""

        def some() -> list[bytes]:
            messages = self.consumer.consume(AT_ONCE, 0.2)
            return [m.value() for m in messages if m.error() is None]  # type: ignore[misc]

        if self.is_at_end():
            return []
        return wait_until(some, "there is more to read")

    def is_at_end(self) -> bool:
        owned = self.consumer.assignment()
        if len(owned) < SOURCE_PARTITIONS:
            return False
        return sum(max(each.offset, 0) for each in self.consumer.position(owned)) == RECORDS

    def write(self, values: list[bytes]) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(self.target, value, partition=0)

    def send_offsets(self) -> None:
        positions = self.consumer.position(self.consumer.assignment())
        self.producer.send_offsets_to_transaction(
            [each for each in positions if each.offset >= 0],
            self.consumer.consumer_group_metadata(),
            WAIT_S,
        )

    def commit(self) -> None:
        """As the documentation of the client says: call it again when the error is retriable."""
        while True:
            try:
                self.producer.commit_transaction(WAIT_S)
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise
            else:
                return

    def committed(self) -> int:
        """Records of the source, by the offsets that are committed and stable."""

        def ask() -> list[TopicPartition] | None:
            wanted = [TopicPartition(self.source, p) for p in range(SOURCE_PARTITIONS)]
            try:
                return self.consumer.committed(wanted, timeout=10)
            except KafkaException:
                return None

        return sum(max(each.offset, 0) for each in wait_until(ask, "the offsets are told"))

    def rewind(self) -> None:
        """To where the transaction began that has come to nothing."""
        owned = self.consumer.assignment()
        for each in self.consumer.committed(owned, timeout=WAIT_S):
            self.consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))

    def start_again(self) -> None:
        """As a program that was killed, but for the member."""
        self.producer = self.new_producer()
        poll_until([], lambda: len(self.member.owned()) == SOURCE_PARTITIONS, "it is a member")
        self.rewind()

    def close(self) -> None:
        self.member.close()


def test_output_and_offsets_are_committed_together_or_not_at_all(cluster):
    copier = Copier(cluster, "together")
    with (
        Reader(cluster.bootstrap_servers, copier.target, 1, "read_committed") as careful,
        Reader(cluster.bootstrap_servers, copier.target, 1, "read_uncommitted") as careless,
    ):
        committed: list[bytes] = []
        every: list[bytes] = []
        aborts = 0
        while values := copier.read():
            copier.write(values)
            copier.send_offsets()
            every += values
            # It is open: those who look at everything see it, the others and the group do not.
            copier.producer.flush(WAIT_S)
            careless.wait_for({0: every})
            careful.wait_for({0: committed})
            if len(every) // AT_ONCE % 3 == 1 and aborts < 3:
                aborts += 1
                copier.producer.abort_transaction(WAIT_S)
                assert copier.committed() == len(committed)
                copier.rewind()
            else:
                copier.commit()
                committed += values
                careful.wait_for({0: committed})
                assert copier.committed() == len(committed)
        assert aborts
        assert sorted(map(int, committed)) == list(range(RECORDS))
    copier.close()


def test_kafka_python_commits_output_and_offsets_together_or_not_at_all(cluster):
    source, target = "kafka-python-in", "kafka-python-out"
    create_topic(cluster, source, partitions=SOURCE_PARTITIONS)
    create_topic(cluster, target)
    servers = cluster.bootstrap_servers.split(",")
    with closing(KafkaProducer(bootstrap_servers=servers)) as filler:
        for number in range(RECORDS):
            filler.send(source, b"%d" % number, partition=number % SOURCE_PARTITIONS)
        filler.flush(WAIT_S)
    with (
        Reader(cluster.bootstrap_servers, target, 1, "read_committed") as careful,
        closing(KafkaProducer(bootstrap_servers=servers, transactional_id=source)) as producer,
        closing(
            KafkaConsumer(
                source,
                bootstrap_servers=servers,
                group_id=source,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                max_poll_records=RECORDS // 3,
            )
        ) as consumer,
    ):
        producer.init_transactions()
        parts = [KafkaPythonPartition(source, p) for p in range(SOURCE_PARTITIONS)]

        def committed() -> int:
            return sum(consumer.committed(each) or 0 for each in parts)

        copied: list[bytes] = []
        aborted: list[bytes] = []
        while len(copied) < RECORDS:
            polled = wait_until(lambda: consumer.poll(500), "there is more to read")
            values = [record.value for records in polled.values() for record in records]
            producer.begin_transaction()
            for value in values:
                producer.send(target, value, partition=0)
            positions = {
                tp: OffsetAndMetadata(records[-1].offset + 1, "", -1)
                for tp, records in polled.items()
            }
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
            if aborted or not copied:
                producer.commit_transaction()
                copied += values
            else:
                producer.flush(WAIT_S)
                producer.abort_transaction()
                aborted = values
                for tp, records in polled.items():
                    consumer.seek(tp, records[0].offset)
            # The client doesn't ask for stable offsets, so the markers may still be on their way.
            count = len(copied)
            wait_until(lambda count=count: committed() == count, "the group's offsets are these")
            careful.wait_for({0: copied})
        assert aborted
        assert sorted(map(int, copied)) == list(range(RECORDS))


@in_full
def test_everything_is_copied_once_while_the_groups_coordinator_is_killed(cluster):
    """Killed before the offsets are sent, or between them and the end of the transaction.

    The producer is a new one after a kill: librdkafka 2.16 waits for ever for a coordinator that it
    knows and that the metadata does not name any more (its issue 5511).
    """
    copier = Copier(cluster, "killed")
    generator = random.Random(SEED)
    moments = ["offsets", "end"] * KILLS
    generator.shuffle(moments)
    del moments[KILLS:]
    client = admin(cluster)
    state = state_partition(copier.name, COORDINATOR_PARTITIONS)
    with Reader(cluster.bootstrap_servers, copier.target, 1, "read_committed") as reader:
        while values := copier.read():
            moment = moments.pop() if moments else ""
            victim = leader_of(client, OFFSETS, state) if moment else None
            if victim is not None:
                # One that has not asked for the group's coordinator yet.
                copier.start_again()
                values = copier.read()
            try:
                copier.write(values)
                if moment == "offsets" and victim is not None:
                    cluster.kill_broker(victim)
                copier.send_offsets()
                if moment == "end" and victim is not None:
                    cluster.kill_broker(victim)
                copier.commit()
            except KafkaException as failure:
                error = failure.args[0]
                assert victim is not None and (error.txn_requires_abort() or error.fatal()), error
                copier.start_again()
            if victim is not None:
                cluster.start_broker(victim)
                wait_for_isr(client, OFFSETS, 3, state)
                wait_for_isr(client, copier.target, 3)
                copier.start_again()
        wait_until(lambda: len(reader.seen[0]) >= RECORDS, "everything is in the target")
        assert copier.committed() == RECORDS
    assert not moments
    assert sorted(map(int, reader.seen[0])) == list(range(RECORDS))
    copier.close()
