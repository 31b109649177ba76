"""Dead letters go back once: what is sent, what is kept, and how far a run has come."""

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.letter_replay.replay import ConcurrentReplayError, LetterReplay
from storage_engine.letter_replay.selection import LetterSelection
from storage_engine.protocol.dead_letter_headers import REASON
from storage_engine.tests.client.fake_cluster import FakeCluster
from storage_engine.tests.letter_replay.dead_letters import (
    DEAD,
    Coordinator,
    add_letters,
    records_in,
    values_in,
)

EVERYTHING = LetterSelection()


@pytest.fixture
def fake():
    fake = FakeCluster()
    fake.add_topic(DEAD, [1, 2])
    fake.add_topic("orders", [2, 3])
    yield fake
    fake.close()


@pytest.fixture
def coordinator(fake) -> Coordinator:
    return Coordinator(fake)


@pytest.fixture
def cluster(fake):
    with Cluster(fake.bootstrap_servers, deadline_ms=5000, unknown_topic_wait_ms=300) as cluster:
        yield cluster


def replayed(cluster, selection=EVERYTHING, limit=None) -> list[int]:
    """The numbers of letters that were sent, after each piece."""
    told: list[int] = []
    replay = LetterReplay(cluster, DEAD, selection, limit=limit)
    replay.run(replay.survey(), told.append)
    return told


def test_letters_go_to_their_partition_without_the_reason_and_the_next_run_has_none(
    fake, cluster, coordinator
):
    add_letters(fake, ("orders", 1, b"bad"), ("orders", 0, b"bad"), ("orders", 1, b"bad"))
    assert replayed(cluster) == [3]
    assert (values_in(fake, "orders", 0), values_in(fake, "orders", 1)) == ([b"1"], [b"0", b"2"])
    (headers,) = records_in(fake, "orders", 0).headers.to_pylist()
    names = [each["key"] for each in headers]
    assert REASON not in names and "own" in names
    assert list(coordinator.origins.values()) == [2]
    assert replayed(cluster) == []
    assert coordinator.commits == [0]


def test_letters_before_a_selected_one_move_to_the_end_and_those_behind_it_stay(
    fake, cluster, coordinator
):
    add_letters(fake, ("orders", 0, b"keep"))
    add_letters(fake, ("orders", 0, b"bad"), ("orders", 0, b"keep"))
    assert replayed(cluster, LetterSelection(reason="bad"))[-1] == 1
    assert values_in(fake, "orders", 0) == [b"1"]
    assert values_in(fake, DEAD) == [b"0", b"1", b"2", b"0"]
    assert list(coordinator.origins.values()) == [1], "the last letter was not touched"
    assert replayed(cluster)[-1] == 2
    assert values_in(fake, "orders", 0) == [b"1", b"2", b"0"]


def test_a_limit_is_of_the_letters_of_all_partitions(fake, cluster, coordinator):
    for partition in (0, 1):
        add_letters(fake, ("orders", 0, b"bad"), ("orders", 0, b"bad"), partition=partition)
    assert replayed(cluster, limit=3)[-1] == 3
    assert values_in(fake, "orders", 0) == [b"0", b"1", b"0"]
    assert sorted(coordinator.origins.values()) == [0, 1]


def test_a_letter_that_does_not_say_where_it_came_from_is_kept(fake, cluster, coordinator):
    add_letters(fake, (None, 0, b"bad"), ("orders", 0, b"bad"))
    assert replayed(cluster)[-1] == 1
    assert values_in(fake, "orders", 0) == [b"1"]
    assert values_in(fake, DEAD)[-1] == b"0"


def test_a_partition_of_origin_that_is_gone_is_replaced_by_another(fake, cluster, coordinator):
    add_letters(fake, ("orders", 9, b"bad"))
    assert replayed(cluster) == [1]
    assert values_in(fake, "orders", 0) + values_in(fake, "orders", 1) == [b"0"]


def test_a_topic_of_origin_that_is_gone_is_told_before_anything_is_sent(fake, cluster, coordinator):
    add_letters(fake, ("orders", 0, b"bad"), ("gone", 0, b"bad"))
    with pytest.raises(KafkaError, match="'gone'"):
        replayed(cluster)
    assert coordinator.commits == []


def test_another_run_that_has_moved_on_meanwhile_ends_this_one(fake, cluster, coordinator):
    add_letters(fake, ("orders", 0, b"bad"))
    replay = LetterReplay(cluster, DEAD, EVERYTHING)
    survey = replay.survey()
    coordinator.origins = {TopicPartition("id:another", 0): 0}
    aborts = coordinator.aborts
    with pytest.raises(ConcurrentReplayError, match="start this one again when the other has"):
        replay.run(survey, lambda sent: None)
    assert (coordinator.commits, coordinator.aborts) == ([], aborts + 1)
    assert fake.partition("orders").batches == []
