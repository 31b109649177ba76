"""`headrace replay-dead-letters` on real brokers: letters go back once, whatever is killed,
selected or run twice. Read by confluent-kafka. Source: R-CLI4.
"""

import json
import signal
import sys
from collections import Counter

import pytest

from integration_tests.forks.forked import run
from integration_tests.support.cluster_support import create_topic
from integration_tests.support.command_line import UNKNOWN_TOPIC_MS, giving_up_after
from integration_tests.support.spark_support import consume, produce
from storage_engine.client.cluster import Cluster
from storage_engine.letter_replay.replay import ConcurrentReplayError, LetterReplay
from storage_engine.letter_replay.selection import LetterSelection
from storage_engine.protocol.dead_letter_headers import (
    OFFSET,
    PARTITION,
    REASON,
    TIMESTAMP,
    TOPIC,
)
from storage_engine.tools.cli import main

PARTITIONS = 2
LETTERS = 40
VALUE_BYTES = 100_000
"""So large that a partition's letters are several chunks."""

KILLED = """
import os, signal, sys
from storage_engine.client.micro_batches import MicroBatches
from storage_engine.tools.cli import main

moment, turn, commit, calls = sys.argv[1], int(sys.argv[2]), MicroBatches.commit, []

def fatal(*args, **kwargs):
    calls.append(1)
    if len(calls) == turn and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    outcome = commit(*args, **kwargs)
    if len(calls) == turn:
        os.kill(os.getpid(), signal.SIGKILL)
    return outcome

MicroBatches.commit = fatal
sys.exit(main(sys.argv[3:]))
"""


@pytest.fixture
def dead(spark_cluster, topic) -> str:
    """A topic of dead letters; `topic` is the one they came from."""
    create_topic(spark_cluster, topic, partitions=PARTITIONS, replication_factor=1)
    create_topic(spark_cluster, f"{topic}-dead", partitions=PARTITIONS, replication_factor=1)
    return f"{topic}-dead"


def letter(topic, number, *, reason="wrong", size=0, timestamp_ms=1_000):
    """Number n came from partition n % PARTITIONS, and is in another one of the dead letters."""
    return {
        "key": f"key-{number}".encode(),
        "value": f"{number}:".encode() + b"x" * size,
        "partition": (number + 1) % PARTITIONS,
        "headers": [
            ("own", b"header"),
            (TOPIC, topic.encode()),
            (PARTITION, str(number % PARTITIONS).encode()),
            (OFFSET, str(number).encode()),
            (TIMESTAMP, str(timestamp_ms).encode()),
            (REASON, reason.encode()),
        ],
    }


def numbers(servers, topic) -> Counter[int]:
    """How often each is there."""
    return Counter(int((each.value() or b"").split(b":")[0]) for each in consume(servers, topic))


def replay(servers, dead, *arguments, capsys):
    """What the command says with --json."""
    assert (
        main(["replay-dead-letters", dead, "--bootstrap-server", servers, "--json", *arguments])
        == 0
    )
    return json.loads(capsys.readouterr().out)


def test_letters_go_back_as_they_came_to_where_they_came_from(servers, topic, dead, capsys):
    produce(servers, dead, (letter(topic, number) for number in range(6)))
    dry = replay(servers, dead, "--dry-run", capsys=capsys)
    assert (dry["waiting"], dry["selected"], dry["sent"]) == (6, 6, 0)
    assert dry["kinds"] == [{"topic": topic, "reason": "wrong", "letters": 6}]
    assert consume(servers, topic) == []

    assert replay(servers, dead, capsys=capsys)["sent"] == 6
    for message in consume(servers, topic):
        number = int((message.value() or b"").split(b":")[0])
        assert message.partition() == number % PARTITIONS
        assert message.key() == f"key-{number}".encode()
        assert message.headers() == [
            ("own", b"header"),
            (TOPIC, topic.encode()),
            (PARTITION, str(number % PARTITIONS).encode()),
            (OFFSET, str(number).encode()),
            (TIMESTAMP, b"1000"),
        ]
    assert replay(servers, dead, capsys=capsys)["waiting"] == 0
    produce(servers, dead, [letter(topic, 6)])
    assert replay(servers, dead, capsys=capsys)["sent"] == 1
    assert numbers(servers, topic) == Counter(range(7))


def test_what_is_not_selected_stays_and_can_be_sent_later(servers, topic, dead, capsys):
    kinds = [("late", 1_000), ("late", 2_000), ("no number", 1_000), ("no number", 2_000)]
    letters = [
        letter(topic, number, reason=kinds[number % 4][0], timestamp_ms=kinds[number % 4][1])
        for number in range(40)
    ]
    letters.append({"key": None, "value": b"100:not a letter", "partition": 0})
    produce(servers, dead, letters)
    some = replay(servers, dead, "--reason", "^no n", "--since", "2000", capsys=capsys)
    assert (some["waiting"], some["selected"], some["without_origin"]) == (41, 10, 1)
    assert numbers(servers, topic) == Counter(range(3, 40, 4))
    few = replay(servers, dead, "--until", "1970-01-01T00:00:02", "--limit", "4", capsys=capsys)
    assert (few["waiting"], few["sent"]) == (31, 4)
    none = replay(servers, dead, "--topic", "another", capsys=capsys)
    assert (none["waiting"], none["sent"]) == (27, 0)
    rest = replay(servers, dead, "--topic", topic, capsys=capsys)
    assert (rest["waiting"], rest["sent"]) == (27, 26)
    assert numbers(servers, topic) == Counter(range(40))
    # What nobody can send back is still there, in front of nothing.
    assert replay(servers, dead, capsys=capsys)["without_origin"] <= 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_is_killed_before_or_after_a_commit_is_continued(
    servers, topic, dead, capsys, moment
):
    letters = (
        letter(topic, number, size=VALUE_BYTES, reason="wrong" if number % 3 else "kept")
        for number in range(LETTERS)
    )
    produce(servers, dead, letters)
    arguments = ["replay-dead-letters", dead, "--bootstrap-server", servers, "--reason", "wrong"]
    killed = run([sys.executable, "-c", KILLED, moment, "2", *arguments])
    assert killed.returncode == -signal.SIGKILL
    rest = replay(servers, dead, "--reason", "wrong", capsys=capsys)
    wrong = [number for number in range(LETTERS) if number % 3]
    assert 0 < rest["sent"] < len(wrong), "one chunk was committed by the killed run"
    assert numbers(servers, topic) == Counter(wrong)
    replay(servers, dead, capsys=capsys)
    assert numbers(servers, topic) == Counter(range(LETTERS))


def test_two_runs_at_a_time_send_nothing_twice(servers, topic, dead, capsys):
    produce(servers, dead, (letter(topic, number) for number in range(10)))
    with Cluster(servers) as cluster:
        slow = LetterReplay(cluster, dead, LetterSelection())
        survey = slow.survey()
        assert replay(servers, dead, capsys=capsys)["sent"] == 10
        with pytest.raises(
            ConcurrentReplayError, match=r"another run is sending .* start this one again"
        ):
            slow.run(survey, lambda sent: None)
    assert numbers(servers, topic) == Counter(range(10))


def test_letters_of_a_topic_that_is_gone_and_wrong_arguments_are_one_line(
    servers, topic, dead, capsys
):
    produce(servers, dead, [letter("gone", 0)])
    arguments = ["replay-dead-letters", dead, "--bootstrap-server", servers]
    with giving_up_after(unknown_topic_wait_ms=UNKNOWN_TOPIC_MS):
        assert main(arguments) == 1
    assert "gone" in capsys.readouterr().err
    assert main([*arguments, "--reason", "("]) == 1
    assert "'(' is not a regular expression" in capsys.readouterr().err
