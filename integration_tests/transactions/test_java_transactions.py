"""KIP-890 with real processes and Kafka's own Java client, unmodified: it enlists nothing, since
the brokers do, and has an epoch for each transaction, also while coordinators and leaders are
killed."""

import queue
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from integration_tests.support.cluster_support import (
    COORDINATOR_PARTITIONS,
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.java_clients import NEWEST, SHORT_LIVED, compiled
from integration_tests.support.transactional_clients import Reader
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tests.sampling import ALL_FAULTS, SEED
from storage_engine.tools.local.local_cluster import LocalCluster

SOURCE = Path(__file__).with_name("JavaTransactions.java")
NAME = "by-java"
STATE = "__transaction_state"
PARTITIONS = 3
ENLISTING = {"ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN"}
APIS = {"PRODUCE", "TXN_OFFSET_COMMIT", "END_TXN", *ENLISTING}
ANSWER_S = 300.0
"""Longer than what is sent may take with all retries."""

SOME_KILLS = ["coordinator between", "coordinator before" if SEED % 2 else "leader between"]
KILLS = [*SOME_KILLS, "coordinator before", "leader between"] * 3 if ALL_FAULTS else SOME_KILLS
"""What is killed, and when: before the transaction writes, or between its partitions."""

LOGGING = """\
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %m%n
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
logger.network.name = org.apache.kafka.clients.NetworkClient
logger.network.level = debug
"""
_SENT = re.compile(r"Sending (\w+) request with header RequestHeader\(apiKey=\w+, apiVersion=(\d+)")
_EPOCH = re.compile(r"EndTxnRequestData\(.*producerEpoch=(\d+), committed=(true|false)")


class Sent(NamedTuple):
    """A request that the client sent."""

    api: str
    version: int
    line: str


class JavaProducer:
    """One JVM, which does one thing after another."""

    def __init__(self, cluster: LocalCluster, path: str, name: str, folder: Path) -> None:
        self._log = folder / f"{name}.log"
        logging = folder / f"{name}.properties"
        logging.write_text(LOGGING.format(file=self._log))
        self._process = subprocess.Popen(
            [
                *("java", *SHORT_LIVED, "-Xmx128m"),
                *(f"-Dlog4j2.configurationFile={logging}", "-cp", path),
                *("JavaTransactions", cluster.bootstrap_servers, name),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line.strip())

    def tell(self, command: str) -> str:
        """What came of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answers.get(timeout=ANSWER_S)

    def do(self, *commands: str) -> None:
        for command in commands:
            assert self.tell(command) == "done", command

    def requests(self) -> list[Sent]:
        """So far, in their order."""
        lines = self._log.read_text().splitlines()
        matches = ((_SENT.search(line), line) for line in lines)
        return [Sent(match[1], int(match[2]), line) for match, line in matches if match]

    def ends(self) -> list[tuple[int, bool]]:
        """(epoch, whether it commits) of each EndTxn, once."""
        found = [_EPOCH.search(each.line) for each in self.requests()]
        ends = [(int(match[1]), match[2] == "true") for match in found if match]
        return list(dict.fromkeys(ends))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()


@pytest.fixture(scope="module")
def producer(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaProducer]:
    folder = tmp_path_factory.mktemp("java")
    made = JavaProducer(cluster, compiled(SOURCE, NEWEST, folder), NAME, folder)
    try:
        made.do("init")
        yield made
    finally:
        made.close()


def committed_offset(cluster: LocalCluster, group: str, topic: str) -> int:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0}
    )
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=60)
        return found.offset
    finally:
        consumer.close()


def test_the_client_enlists_nothing_and_each_transaction_has_its_epoch(cluster, producer):
    topic = "epochs"
    create_topic(cluster, topic, partitions=PARTITIONS, config={"min.insync.replicas": "2"})
    servers = cluster.bootstrap_servers
    expected: list[bytes] = []
    outcomes = [number % 3 != 1 for number in range(8)]
    with Reader(servers, topic, PARTITIONS, "read_committed") as reader:
        for number, commits in enumerate(outcomes):
            producer.do(
                "begin", f"send {topic} {number} 0 1 2", f"offsets readers {topic} {number}"
            )
            producer.do("commit" if commits else "abort")
            if commits:
                expected.append(b"%d" % number)
        reader.wait_for(dict.fromkeys(range(PARTITIONS), expected))
    last = max(number for number, commits in enumerate(outcomes) if commits)
    wait_until(
        lambda: committed_offset(cluster, "readers", topic) == last,
        "the offsets of the last commit",
    )
    asked = {(each.api, each.version) for each in producer.requests() if each.api in APIS}
    assert asked == {("PRODUCE", 12), ("TXN_OFFSET_COMMIT", 5), ("END_TXN", 5)}
    assert producer.ends() == list(enumerate(outcomes))


def test_transactions_are_whole_while_coordinators_and_leaders_are_killed(cluster, producer):
    topic = f"{NAME}-killed"
    create_topic(cluster, topic, partitions=PARTITIONS, config={"min.insync.replicas": "2"})
    client = admin(cluster)
    outcomes: dict[bytes, bool] = {}
    with Reader(cluster.bootstrap_servers, topic, PARTITIONS, "read_committed") as reader:
        for number, kill in enumerate(KILLS):
            value = b"%d" % number
            who, moment = kill.split()
            of_whom = (
                (STATE, state_partition(NAME, COORDINATOR_PARTITIONS))
                if who == "coordinator"
                else (topic, number % PARTITIONS)
            )
            victim = leader_of(client, *of_whom)
            producer.do("begin")
            if moment == "before":
                cluster.kill_broker(victim)
            producer.do(f"send {topic} {number} 0")
            if moment == "between":
                cluster.kill_broker(victim)
            outcomes[value] = whole(producer, f"send {topic} {number} 1 2")
            cluster.start_broker(victim)
            for partition in range(PARTITIONS):
                wait_for_isr(client, topic, 3, partition)
            wait_for_isr(client, STATE, 3, state_partition(NAME, COORDINATOR_PARTITIONS))
        producer.do("begin", f"send {topic} end 0 1 2", "commit")
        expected = [*(value for value, commits in outcomes.items() if commits), b"end"]
        reader.wait_for(dict.fromkeys(range(PARTITIONS), expected))
    assert len(expected) > len(KILLS) // 2, "a kill is a pause, not an abort"
    epochs = [epoch for epoch, _ in producer.ends()]
    assert epochs == sorted(set(epochs)), "each has an epoch of its own"
    assert not ENLISTING & {each.api for each in producer.requests()}


def whole(producer: JavaProducer, command: str) -> bool:
    """Do it and commit, or abort, as the client's documentation has it; whether it committed."""
    if producer.tell(command) == "done":
        # Of a commit that timed out nobody knows whether it counts: it must be asked again.
        while "TimeoutException" in (outcome := producer.tell("commit")):
            pass
        if outcome == "done":
            return True
    producer.do("abort")
    return False
