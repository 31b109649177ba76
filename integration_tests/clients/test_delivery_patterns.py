"""R-CLI4: each example of examples/delivery keeps its promise when it is killed at the worst moment
and started again. Results are read by a client that we did not write.

All of it goes on at the same time: most is waiting for the end of killed members' sessions.
"""

import contextlib
import importlib
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from integration_tests.forks.forked import popen, run
from integration_tests.support.cluster_support import create_topic, running_cluster, wait_until
from storage_engine.protocol.dead_letter_headers import OFFSET, PARTITION, TOPIC
from storage_engine.tests.sampling import ALL_FAULTS, SEED
from storage_engine.tools.local.local_cluster import LocalCluster

Story = Callable[[LocalCluster], None]

EXAMPLES = ("at_least_once", "at_most_once", "exactly_once", "long_processing", "retry_topic")
MOST_LINES = 60
RECORDS = 40
AT_ONCE = 10
FATAL_CALL = 13
"""In the middle of the second handful."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    settings = (
        ("group.initial.rebalance.delay.ms", "0"),
        ("group.min.session.timeout.ms", "4000"),
        ("transaction.state.log.num.partitions", "1"),
    )
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, brokers=1, settings=settings) as made:
        yield made


@pytest.fixture(scope="module")
def stories(cluster) -> Iterator[dict[Story, Future[None]]]:
    with ThreadPoolExecutor(len(TOLD)) as pool:
        yield {story: pool.submit(story, cluster) for story in TOLD}


def filled(cluster: LocalCluster, topic: str, values: list[bytes]) -> str:
    """One partition, so that values come in their order."""
    create_topic(cluster, topic, replication_factor=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    return topic


def numbers(count: int = RECORDS) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def killed(example: str, function: str, moment: str, turn: int, *arguments: str) -> list[str]:
    """What it has told until it killed itself."""
    command = [sys.executable, "-P", "-m", "integration_tests.clients.killed_example"]
    fatal = [f"examples.delivery.{example}", function, moment, str(turn)]
    done = run([*command, *fatal, *arguments], text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.splitlines()


@contextlib.contextmanager
def running(example: str, *arguments: str) -> Iterator[Callable[[], str]]:
    """Started again; gives its lines, one a call."""
    command = [sys.executable, "-P", "-m", f"examples.delivery.{example}", *arguments]
    with popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline
        finally:
            process.kill()


def until(next_line: Callable[[], str], last: str) -> list[str]:
    """What it tells, to the line that ends so."""
    lines = []
    while line := next_line():
        lines.append(line.strip())
        if line.split()[-1] == last and not line.startswith("#"):
            return lines
    raise AssertionError(f"it has ended: {lines}")


def values(lines: list[str]) -> list[int]:
    return [int(line.split()[-1]) for line in lines if not line.startswith("#")]


def written(cluster: LocalCluster, topic: str, count: int) -> list[Message]:
    """What is read of it with read_committed, once so much is there."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    found: list[Message] = []

    def all_there() -> bool:
        found.extend(m for m in consumer.consume(100, 0.05) if m.error() is None)
        return len(found) >= count

    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        wait_until(all_there, f"{count} records are in {topic}")
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_short_and_teaches(example, capsys, monkeypatch):
    lines = Path(f"examples/delivery/{example}.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES
    assert lines[0].startswith('"""') and len(lines[2].split()) > 10
    monkeypatch.setattr(sys, "argv", [example, "--help"])
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(f"examples.delivery.{example}").main()
    help_text = capsys.readouterr().out
    assert "HOST:PORT" in help_text and lines[2] in help_text


def at_most_once_loses_what_was_interrupted_and_repeats_nothing(cluster: LocalCluster) -> None:
    topic = filled(cluster, "at-most-once", numbers())
    arguments = (cluster.bootstrap_servers, topic, "--at-once", str(AT_ONCE))
    before = values(killed("at_most_once", "work", "before", FATAL_CALL, *arguments))
    with running("at_most_once", *arguments) as next_line:
        after = values(until(next_line, str(RECORDS - 1)))
    assert before == list(range(FATAL_CALL - 1))
    assert after == list(range(after[0], RECORDS))
    assert 1 <= after[0] - len(before) <= AT_ONCE, "what was interrupted is lost, and no more"


def at_least_once_repeats_what_was_interrupted_and_loses_nothing(cluster: LocalCluster) -> None:
    topic = filled(cluster, "at-least-once", numbers())
    arguments = (cluster.bootstrap_servers, topic, "--at-once", str(AT_ONCE))
    before = values(killed("at_least_once", "work", "after", FATAL_CALL, *arguments))
    with running("at_least_once", *arguments) as next_line:
        after = values(until(next_line, str(RECORDS - 1)))
    assert before == list(range(FATAL_CALL))
    assert set(after) == set(range(after[0], RECORDS))
    assert 1 <= len(before) - after[0] <= AT_ONCE, "done, not committed: it comes again"


def exactly_once_loses_nothing_and_repeats_nothing(cluster: LocalCluster) -> None:
    source = filled(cluster, "exactly-once", numbers())
    target = filled(cluster, "exactly-once-out", [])
    arguments = (cluster.bootstrap_servers, source, target)
    killed("exactly_once", "transform", "before", FATAL_CALL, *arguments)
    with running("exactly_once", *arguments):
        written(cluster, target, RECORDS)
    found = Counter(int(message.value()) for message in written(cluster, target, RECORDS))
    assert found == dict.fromkeys(range(RECORDS), 1)


def long_work_keeps_the_membership_and_is_done_again_after_a_crash(cluster: LocalCluster) -> None:
    topic = filled(cluster, "long-processing", numbers(2))
    # Longer than a member may be silent for, which is long for a busy machine.
    slow = ("--seconds", "9", "--max-poll-interval-ms", "8000")
    before = killed("long_processing", "work", "before", 2, cluster.bootstrap_servers, topic, *slow)
    since = before.index("# begins 0")
    assert before[since:] == ["# begins 0", "0 0 0"], "it stays a member"
    with running(
        "long_processing", cluster.bootstrap_servers, topic, "--seconds", "0"
    ) as next_line:
        assert values(until(next_line, "1")) == [1], "what was interrupted is done"


def what_fails_is_tried_again_and_ends_among_the_dead_letters(cluster: LocalCluster) -> None:
    bad = 7
    content = numbers()
    content[bad] = b"seven"
    topic = filled(cluster, "orders", content)
    for name in ("orders-retry", "orders-dead"):
        filled(cluster, name, [])
    arguments = (cluster.bootstrap_servers, topic)
    before = values(killed("retry_topic", "work", "before", FATAL_CALL, *arguments))
    with running("retry_topic", *arguments) as next_line:
        after = values(until(next_line, str(RECORDS - 1)))
        letters = written(cluster, "orders-dead", 1)
    assert set(before) | set(after) == set(range(RECORDS)) - {bad}, "it held up no other"
    for letter in letters:
        assert letter.value() == b"seven"
        headers = dict(letter.headers() or ())
        assert headers["attempt"] == b"3"
        assert (headers[TOPIC], headers[PARTITION]) == (b"orders", b"0")
        assert headers[OFFSET] == b"%d" % bad


STORIES: tuple[Story, ...] = (
    at_most_once_loses_what_was_interrupted_and_repeats_nothing,
    at_least_once_repeats_what_was_interrupted_and_loses_nothing,
    exactly_once_loses_nothing_and_repeats_nothing,
    long_work_keeps_the_membership_and_is_done_again_after_a_crash,
    what_fails_is_tried_again_and_ends_among_the_dead_letters,
)


TOLD = STORIES if ALL_FAULTS else random.Random(SEED).sample(STORIES, 3)
"""Others with another seed."""


@pytest.mark.parametrize("story", TOLD)
def test_an_example_keeps_its_promise(stories, story):
    stories[story].result()
