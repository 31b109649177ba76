"""`headrace mirror` between real clusters: killed at the worst moments it leaves nothing out and
copies nothing twice. Read by confluent-kafka. Source: R-CLI6.
"""

import json
import random
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from integration_tests.command_line.killed_mirror import MOMENTS, QUICK, run_and_kill
from integration_tests.command_line.mirrored import (
    Filler,
    commit_offsets,
    committed_offsets,
    committed_records,
)
from integration_tests.forks.forked import popen
from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.command_line import fail_here, start
from storage_engine.client import Consumer
from storage_engine.client.admin.record_deletion import delete_records
from storage_engine.client.admin.topics import (
    create_partitions,
    delete_topics,
    describe_topic_configs,
)
from storage_engine.client.cluster import LATEST, Cluster
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.sampling import ALL_FAULTS, SEED, in_full
from storage_engine.tools.cli import main
from storage_engine.tools.local.local_cluster import LocalCluster

PARTITIONS = 3
KILLS = 20 if ALL_FAULTS else 3
RECORDS_A_ROUND = 1_000_000 // KILLS if ALL_FAULTS else 2_000

FETCH_BYTES, TRANSACTION_BYTES = (256 << 10, 1 << 20) if ALL_FAULTS else (1, 1)
"""Of mirrors that are killed. 1: a batch, and a commit after it."""

LAST_TURN = {"started": 1, "taken": 25, "appended": 50} if ALL_FAULTS else {"started": 1}
"""The latest time of a moment that a mirror is killed at; where there is none, the 4th."""

SOMETIME_MS = 2_000

WAIT_S = 180.0
"""For what a mirror does between two looks at its sources."""


class Pair(NamedTuple):
    """Bootstrap servers of two clusters, each of one broker."""

    source: str
    target: str
    source_cluster: LocalCluster


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Iterator[Pair]:
    settings = (
        ("transaction.state.log.num.partitions", "2"),
        ("group.initial.rebalance.delay.ms", "0"),
    )
    folder = tmp_path_factory.mktemp("clusters")
    with (
        running_cluster(folder / "source", brokers=1, settings=settings) as source,
        running_cluster(folder / "target", brokers=1, settings=settings) as target,
    ):
        yield Pair(source.bootstrap_servers, target.bootstrap_servers, source)


class Servers(NamedTuple):
    bootstrap_servers: str


def make_topic(servers: str, topic: str, *, partitions: int = PARTITIONS, **config: str) -> None:
    create_topic(
        Servers(servers), topic, partitions=partitions, replication_factor=1, config=config
    )


def produce(servers: str, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


def values_in(servers: str, topic: str, partition: int = 0) -> list[bytes | None]:
    return [seen.value for _, seen in committed_records(servers, topic, partition)]


def arguments(pair: Pair, topics: str, *more: str) -> list[str]:
    return ["mirror", "--source", pair.source, "--target", pair.target, "--topics", topics, *more]


def copy(pair, topics, *more, capsys) -> dict:
    """One run to the end: what it says with --json, and in "err" on stderr."""
    assert main(arguments(pair, topics, "--exit-at-end", "--json", *more)) == 0
    told = capsys.readouterr()
    return {**json.loads(told.out.splitlines()[-1]), "err": told.err}


def test_a_mirror_that_is_killed_leaves_nothing_out_and_copies_nothing_twice(pair, capsys):
    topic = "killed"
    make_topic(pair.source, topic, **{"retention.ms": "-1", "max.message.bytes": "2000000"})
    filler = Filler(pair.source, topic, PARTITIONS, SEED)
    pick = random.Random(SEED)
    if ALL_FAULTS:
        moments = pick.choices((*MOMENTS, "sometime"), k=KILLS)
    else:
        moments = pick.sample(MOMENTS, KILLS)
    for moment in moments:
        filler.fill(RECORDS_A_ROUND)
        kill_a_mirror(pair, topic, moment, pick)
    groups = place_groups(pair, topic, pick)
    last = copy(pair, topic, "--name", topic, "--groups", "billing-.*", capsys=capsys)
    assert last["lag"] == last["skipped"] == 0
    moved = {group: committed_offsets(pair.target, group, topic, PARTITIONS) for group in groups}
    for number in range(PARTITIONS):
        originals = committed_records(pair.source, topic, number)
        copies = committed_records(pair.target, topic, number)
        assert len(originals) > KILLS * RECORDS_A_ROUND / PARTITIONS / 2
        assert [seen for _, seen in copies] == [seen for _, seen in originals]
        for group, offsets in groups.items():
            # It reads on at the record at which it would have read on in the source.
            read_before = bisect_left(originals, (offsets[number],))
            assert bisect_left(copies, (moved[group][number],)) == read_before, (group, offsets)
    assert committed_offsets(pair.target, "others", topic, PARTITIONS) == {}
    with Cluster(pair.target) as target:
        settings = describe_topic_configs(target, topic)
    assert settings["retention.ms"].value == "-1"
    assert settings["max.message.bytes"].value == "2000000"


def kill_a_mirror(pair: Pair, topic: str, moment: str, pick: random.Random) -> None:
    if moment == "sometime":
        turn, ending = pick.randrange(200, SOMETIME_MS), []
    else:
        turn, ending = pick.randint(1, LAST_TURN.get(moment, 4)), ["--exit-at-end"]
    command = arguments(pair, topic, "--name", topic, *ending)
    run_and_kill(moment, turn, FETCH_BYTES, TRANSACTION_BYTES, command)


@in_full
def test_a_mirror_goes_on_while_brokers_of_its_target_are_killed(pair, tmp_path):
    topic = "carried-on"
    make_topic(pair.source, topic, **{"retention.ms": "-1"})
    filler = Filler(pair.source, topic, PARTITIONS, SEED)
    with running_cluster(tmp_path / "target") as target:
        to_three = pair._replace(target=target.bootstrap_servers)
        told = ("--json", "--interval", "0.5", "--commit-interval", "0.05")
        mirror = start(*arguments(to_three, topic, "--name", topic, *told))
        try:
            client = admin(target)
            for victim_of in (topic, "__transaction_state", f"__mirror_{topic}", topic):
                filler.fill(20_000)
                wait_for_copies(mirror, count_records(pair.source, topic))
                victim = leader_of(client, victim_of)
                target.kill_broker(victim)
                filler.fill(20_000)
                wait_for_copies(mirror, count_records(pair.source, topic))
                target.start_broker(victim)
                wait_for_isr(client, victim_of, 3)
            assert mirror.poll() is None
        finally:
            mirror.kill()
            mirror.communicate()
        for number in range(PARTITIONS):
            copies = committed_records(target.bootstrap_servers, topic, number)
            originals = committed_records(pair.source, topic, number)
            assert [seen for _, seen in copies] == [seen for _, seen in originals]


def count_records(servers: str, topic: str) -> int:
    return sum(len(committed_records(servers, topic, number)) for number in range(PARTITIONS))


def wait_for_copies(mirror: "subprocess.Popen[str]", count: int) -> None:
    """By what it tells; with --json, of one topic."""
    assert mirror.stdout is not None
    deadline = time.monotonic() + WAIT_S
    for line in mirror.stdout:
        copied = json.loads(line)["topics"][0]["copied"]
        assert copied <= count
        if copied == count:
            return
        assert time.monotonic() < deadline, f"{copied} of {count} are copied"
    raise AssertionError(f"it has ended: {mirror.stderr and mirror.stderr.read()}")


def place_groups(pair: Pair, topic: str, pick: random.Random) -> dict[str, dict[int, int]]:
    """Groups that have read the source as far as that."""
    groups: dict[str, dict[int, int]] = {f"billing-{n}": {} for n in range(5)}
    for number in range(PARTITIONS):
        with Cluster(pair.source) as source:
            tp = TopicPartition(topic, number)
            end = source.list_offsets({tp: LATEST}, isolation="read_committed")[tp]
        for group, offset in zip(groups, (0, 1, end - 1, end), strict=False):
            groups[group][number] = offset
        groups["billing-4"][number] = pick.randrange(end)
    for group, offsets in groups.items():
        commit_offsets(pair.source, group, topic, offsets)
    commit_offsets(pair.source, "others", topic, {0: 1})
    return groups


def test_sources_new_topics_and_new_partitions_are_followed_and_a_second_mirror_takes_over(pair):
    # The target is a source, too: of topics under other names.
    clusters = ["--source", f"east={pair.source}", "--source", f"west={pair.target}"]
    names = ["--target-topic", "{source}.{topic}", "--name", "all", "--topics", "grown-."]
    command = ["mirror", *clusters, "--target", pair.target, *names]
    for servers, value in ((pair.source, b"of the east"), (pair.target, b"of the west")):
        make_topic(servers, "grown-1", partitions=1)
        produce(servers, "grown-1", [value])
    first = quick(*command)
    try:
        for topic, value in (("east.grown-1", b"of the east"), ("west.grown-1", b"of the west")):
            there(pair, topic, [value])
        second = quick(*command, "--json", "--interval", "0.5")
        try:
            assert second.stdout is not None
            json.loads(second.stdout.readline())
            produce(pair.source, "grown-1", [b"for the second"])
            _, told = first.communicate(timeout=WAIT_S)
            assert first.returncode == 1
            assert told.startswith("headrace: another mirror of the name 'all' has taken over")
            assert told.count("\n") == 1
            there(pair, "east.grown-1", [b"of the east", b"for the second"])

            with Cluster(pair.source) as source:
                create_partitions(source, {"grown-1": 2})
            produce(pair.source, "grown-1", [b"of the new partition"], partition=1)
            make_topic(pair.source, "grown-2", partitions=1)
            produce(pair.source, "grown-2", [b"of the new topic"])
            there(pair, "east.grown-1", [b"of the new partition"], partition=1)
            there(pair, "east.grown-2", [b"of the new topic"])
            if ALL_FAULTS:
                pair.source_cluster.kill_broker(1)
                produce(pair.target, "grown-1", [b"while the east is away"])
                there(pair, "west.grown-1", [b"of the west", b"while the east is away"])
                pair.source_cluster.start_broker(1)
                produce(pair.source, "grown-2", [b"again"])
                there(pair, "east.grown-2", [b"of the new topic", b"again"])
            second.terminate()
            assert second.wait(WAIT_S) == 0
        finally:
            second.kill()
            second.communicate()
    finally:
        first.kill()
        first.communicate()


def quick(*arguments: str) -> "subprocess.Popen[str]":
    return popen(
        [sys.executable, "-c", QUICK, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def there(pair: Pair, topic: str, values: list[bytes], partition: int = 0) -> None:
    """Wait until the target has exactly these."""
    with Cluster(pair.target) as target:

        def has_them() -> bool:
            known = target.metadata([topic]).topics
            if topic not in known or partition not in known[topic].partitions:
                return False
            tp = TopicPartition(topic, partition)
            return target.list_offsets({tp: LATEST}, isolation="read_committed")[tp] >= len(values)

        wait_until(has_them, f"{topic}-{partition} is copied", timeout_s=WAIT_S)
    wait_until(
        lambda: len(values_in(pair.target, topic, partition)) >= len(values),
        f"{topic}-{partition} is copied",
        timeout_s=WAIT_S,
    )
    assert values_in(pair.target, topic, partition) == values


def test_what_retention_took_is_told_and_a_topic_that_was_made_again_is_copied_anew(pair, capsys):
    topic = "made-again"
    make_topic(pair.source, topic, partitions=1)
    produce(pair.source, topic, [b"%d" % n for n in range(10)])
    assert copy(pair, topic, capsys=capsys)["topics"][0]["copied"] == 10
    produce(pair.source, topic, [b"%d" % n for n in range(10, 30)])
    with Cluster(pair.source) as source:
        # In the middle of a batch.
        delete_records(source, {TopicPartition(topic, 0): 15})
    told = copy(pair, topic, capsys=capsys)
    assert (told["skipped"], told["lag"]) == (5, 0)
    assert "made-again-0 of source: offsets 10 to 14 were deleted in the source" in told["err"]
    expected = [b"%d" % n for n in (*range(10), *range(15, 30))]
    assert values_in(pair.target, topic) == expected

    with Cluster(pair.source) as source:
        delete_records(source, {TopicPartition(topic, 0): 30})
        assert copy(pair, topic, capsys=capsys)["skipped"] == 0
        delete_topics(source, [topic])
    make_topic(pair.source, topic, partitions=1)
    produce(pair.source, topic, [b"new"])
    assert copy(pair, topic, capsys=capsys)["topics"][0]["copied"] == 1
    assert values_in(pair.target, topic) == [*expected, b"new"]


def test_groups_are_not_moved_back_nor_under_their_members_in_the_target(pair, capsys):
    topic = "ahead"
    make_topic(pair.source, topic, partitions=1)
    produce(pair.source, topic, [b"%d" % n for n in range(10)])
    commit_offsets(pair.source, "ahead", topic, {0: 4})
    copy(pair, topic, "--groups", "ahead", capsys=capsys)
    assert committed_offsets(pair.target, "ahead", topic, 1) == {0: 4}
    commit_offsets(pair.target, "ahead", topic, {0: 7})
    copy(pair, topic, "--groups", "ahead", capsys=capsys)
    assert committed_offsets(pair.target, "ahead", topic, 1) == {0: 7}
    commit_offsets(pair.source, "ahead", topic, {0: 9})
    assert copy(pair, topic, "--groups", "ahead", capsys=capsys)["groups"] == [
        {"source": "source", "group": "ahead", "partitions": 1}
    ]
    assert committed_offsets(pair.target, "ahead", topic, 1) == {0: 9}

    commit_offsets(pair.source, "ahead", topic, {0: 10})
    settings = {"bootstrap.servers": pair.target, "group.id": "ahead", "enable.auto.commit": False}
    with Consumer(settings) as member:
        member.subscribe([topic])
        wait_until(lambda: member.poll(100) or member.assignment, "it is a member")
        assert copy(pair, topic, "--groups", "ahead", capsys=capsys)["groups"] == []
        assert committed_offsets(pair.target, "ahead", topic, 1) == {0: 9}


def test_mistakes_are_one_line(pair, capsys):
    def told(*more: str, status: int = 1, target: str = pair.target) -> str:
        both = ("--source", pair.source, "--target", target, "--topics", "none")
        return fail_here(capsys, "mirror", *both, *more, status=status)

    assert "are one cluster" in told(target=pair.source)
    assert "two sources have the same name" in told("--source", pair.target, status=2)
    assert "--commit-interval is 6; it must be at most 5 s" in told(
        "--commit-interval", "6", status=2
    )
    assert "can't be the name of a mirror" in told("--name", "a/b")
    assert "must have {topic} in it" in told("--target-topic", "copy")
    with pytest.raises(SystemExit):
        main(arguments(pair, "("))
    assert "'(' is not a regular expression" in capsys.readouterr().err
