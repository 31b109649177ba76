"""docs/moving-from-kafka.md, followed as it stands there: from Apache Kafka and back to it."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from benchmarks.arguments import default_folder
from benchmarks.beside_kafka.jars import KAFKA, KRAFT, fetch_jars
from benchmarks.beside_kafka.kafka_cluster import running_kafka
from benchmarks.beside_kafka.kraft_cluster import running_kraft
from integration_tests.documents.blocks import ROOT
from integration_tests.support.cluster_support import (
    DEADLINE_S,
    admin,
    create_topic,
    running_cluster,
    wait_until,
)
from integration_tests.support.command_line import COMMAND, succeed
from storage_engine.tests.sampling import in_full
from storage_engine.tools.errors import CommandError

pytestmark = in_full

PARTITIONS, GROUP = 3, "billing"
KILLED_AFTER_S = 5.0
ONE_REPLICA = (
    ("offsets.topic.replication.factor", "1"),
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("auto.create.topics.enable", "false"),
)
OPEN_TO_US = ("super.users", "User:ANONYMOUS")
AUTHORIZERS = {
    "3.9": "kafka.security.authorizer.AclAuthorizer",
    "4": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
RULE = ("--allow", "User:app", "--consumer", "--topic", "orders", "--group", GROUP)


class Servers(NamedTuple):
    bootstrap_servers: str


@pytest.fixture(params=AUTHORIZERS)
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Servers]:
    settings = (("authorizer.class.name", AUTHORIZERS[request.param]), OPEN_TO_US)
    is_first = request.param == "3.9"
    try:
        jars = fetch_jars(default_folder(), KAFKA if is_first else KRAFT)
    except CommandError as error:
        pytest.skip(str(error))
    folder = tmp_path / "kafka"
    with (
        running_kafka(folder, jars, (*ONE_REPLICA, *settings), 1)
        if is_first
        else running_kraft(folder, jars, (*ONE_REPLICA[4:], *settings))
    ) as running:
        yield Servers(running.bootstrap_servers)


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Servers]:
    settings = (("authorizer.class.name", "AclAuthorizer"), OPEN_TO_US)
    with running_cluster(tmp_path / "ours", brokers=3, settings=settings) as running:
        yield Servers(running.bootstrap_servers)


class Page:
    """The blocks of the document, with the addresses of this test."""

    def __init__(self, kafka: Servers, ours: Servers) -> None:
        text = (ROOT / "docs" / "moving-from-kafka.md").read_text()
        for told, here in (("kafka:9092", kafka), ("h1:9092", ours)):
            text = text.replace(told, here.bootstrap_servers)
        self._blocks = re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)

    def next_block(self) -> list[list[str]]:
        """The arguments of each line."""
        lines = self._blocks.pop(0).splitlines()
        return [shlex.split(line)[1:] for line in lines]

    def is_done(self) -> bool:
        return not self._blocks


@contextlib.contextmanager
def mirror(arguments: list[str], log: Path) -> Iterator[None]:
    """It works in the block, is killed once, and ended by Ctrl-C."""
    first = _mirror(arguments, log)
    with contextlib.suppress(subprocess.TimeoutExpired):
        first.wait(KILLED_AFTER_S)
    first.kill()
    first.wait()
    assert first.returncode == -signal.SIGKILL, log.read_text()
    told = _reports(log)
    second = _mirror(arguments, log)
    try:
        wait_until(lambda: _reports(log) > told, "the mirror is at work again")
        yield
        second.send_signal(signal.SIGINT)
        assert second.wait(DEADLINE_S) == 0, log.read_text()
    except BaseException as error:
        error.add_note(log.read_text()[-2000:])
        raise
    finally:
        second.kill()
        second.wait()


def _reports(log: Path) -> int:
    return log.read_text().count("SOURCE")


def _mirror(arguments: list[str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as output:
        return subprocess.Popen(
            [*COMMAND, *arguments, "--interval", "0.5"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )


def write(servers: Servers, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": servers.bootstrap_servers, "acks": "all"})
    for number in numbers:
        producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


def read(servers: Servers, count: int) -> list[int]:
    """As a member of the group, which commits what it has read."""
    member = Consumer(
        {
            "bootstrap.servers": servers.bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    member.subscribe(["orders"])
    found: list[int] = []

    def has_read() -> bool:
        message = member.poll(0.5)
        if message is not None and not message.error():
            found.append(int(message.value()))
        return len(found) >= count

    wait_until(has_read, f"{count} records are read", timeout_s=2 * DEADLINE_S)
    member.commit(asynchronous=False)
    member.close()
    return found


def values(servers: Servers) -> list[int]:
    """What is committed now, sorted. Kafka's end of a partition lies behind the mark of a
    transaction, which no consumer gets."""
    reader = Consumer(
        {
            "bootstrap.servers": servers.bootstrap_servers,
            "group.id": "looks",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition("orders", number, 0) for number in range(PARTITIONS)])
    found: list[int] = []
    ended: set[int] = set()
    until_s = time.monotonic() + DEADLINE_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < until_s, f"only {ended} have an end"
        message = reader.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(int(message.value()))
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    reader.close()
    return sorted(found)


def wait_for_copies(servers: Servers, count: int) -> None:
    wait_until(
        lambda: is_there(servers) and len(values(servers)) >= count,
        f"{count} records are copied",
        timeout_s=2 * DEADLINE_S,
    )


def is_there(servers: Servers) -> bool:
    """The topic, with a leader of each partition."""
    try:
        topics = admin(servers).list_topics(timeout=5).topics
    except KafkaException:
        return False
    found = topics["orders"].partitions.values() if "orders" in topics else ()
    return len(found) == PARTITIONS and all(each.leader >= 0 for each in found)


def test_a_cluster_moves_from_kafka_and_back_to_kafka_4(kafka, ours, tmp_path, request):
    page = Page(kafka, ours)
    create_topic(
        kafka, "orders", partitions=PARTITIONS, replication_factor=1, config={"retention.ms": "-1"}
    )
    create_topic(kafka, "clicks", replication_factor=1)
    succeed("acls", "add", "--bootstrap-server", kafka.bootstrap_servers, *RULE)
    write(kafka, range(300))
    before = read(kafka, 100)

    copying, rules, topic, group = page.next_block()
    with mirror(copying, tmp_path / "there.log"):
        assert "User:app" in succeed(*rules)
        wait_for_copies(ours, 300)
        assert "retention.ms" in succeed(*topic)
        write(kafka, range(300, 400))
    last, offsets, group = page.next_block()
    succeed(*last)
    succeed(*offsets)
    assert GROUP in succeed(*group)
    assert values(ours) == list(range(400))
    listed = succeed("acls", "list", "--bootstrap-server", ours.bootstrap_servers)
    assert listed.count("User:app") == 3

    if "[3.9]" in request.node.name:
        assert sorted([*before, *read(ours, 300)]) == list(range(400))
        return
    then = read(ours, 280)
    write(ours, range(400, 450))

    *deletions, back = page.next_block()
    for each in deletions:
        succeed(*each)
    with mirror(back, tmp_path / "back.log"):
        wait_for_copies(kafka, 450)
        write(ours, range(450, 460))
    last, group = page.next_block()
    succeed(*last)
    assert GROUP in succeed(*group)
    assert values(kafka) == list(range(460))
    rest = read(kafka, 80)
    # No record is skipped, and none is read twice: nobody worked while the mirror moved the group.
    assert sorted([*before, *then, *rest]) == list(range(460))
    assert page.is_done()
