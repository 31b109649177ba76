"""Between which offsets a search reads, and where the next one goes on."""

import pytest

from headrace_console.problem import ConsoleError
from headrace_console.records.reading_plan import ReadingPlan, plan_reading
from headrace_console.tests.records.appended import append
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def topic(fake):
    """Offsets 2 to 6 in the first partition, 0 to 3 in the second."""
    fake.add_topic("t", [1, 2])
    append(fake, *[b"a"] * 6)
    append(fake, *[b"b"] * 3, partition=1)
    fake.partition("t").start_offset = 2
    return fake


def ranges(cluster, start, partitions=()):
    plan = plan_reading(cluster, "t", partitions, start, "read_committed")
    assert plan.unanswered == []
    return plan.left


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("newest", {A: (2, 6), B: (0, 3)}),
        ("earliest", {A: (2, 6), B: (0, 3)}),
        ("offset:4", {A: (4, 6), B: (4, 3)}),
        ("offset:0", {A: (2, 6), B: (0, 3)}),
        ("after:0=5", {A: (5, 6)}),
        ("before:0=5,1=2", {A: (2, 5), B: (0, 2)}),
        ("before:0=99", {A: (2, 6)}),
    ],
)
@pytest.mark.usefixtures("topic")
def test_a_start_is_a_range_within_what_is_there(cluster, start, expected):
    assert ranges(cluster, start) == expected


@pytest.mark.usefixtures("topic")
def test_only_the_partitions_that_were_asked_for_are_read(cluster):
    assert ranges(cluster, "newest", [1]) == {B: (0, 3)}
    with pytest.raises(KafkaError):
        ranges(cluster, "newest", [2])


@pytest.mark.parametrize(
    ("start", "complaint"),
    [
        ("yesterday", "newest, earliest, offset:N or time:MS"),
        ("now:1", "newest, earliest, offset:N or time:MS"),
        ("offset:", "a whole number after the colon"),
        ("time:-1", "a whole number after the colon"),
        ("offset:" + "9" * 20, "a whole number after the colon"),
        ("after:x=1", "is not a position that an earlier answer has returned"),
        ("before:0=x", "a whole number after the colon"),
    ],
)
@pytest.mark.usefixtures("topic")
def test_another_start_is_refused(cluster, start, complaint):
    with pytest.raises(ConsoleError, match=complaint):
        ranges(cluster, start)


def test_a_partition_without_a_leader_is_told_and_the_others_are_read(topic, cluster):
    topic.move_leader("t", 1, -1)
    plan = plan_reading(cluster, "t", (), "newest", "read_committed")
    assert plan.left == {A: (2, 6)}
    assert plan.unanswered == [{"broker": None, "what": "t-1", "why": "t-1 has no leader now"}]


def planned(*, backwards):
    return ReadingPlan(backwards=backwards, left={A: (2, 10), B: (0, 3)}, unanswered=[])


def test_windows_backwards_begin_at_the_ends_and_meet_without_a_gap():
    plan = planned(backwards=True)
    assert plan.next_windows(5) == {A: (5, 10), B: (0, 3)}
    plan.read(A, 5, 10)
    plan.read(B, 0, 3)
    assert plan.continuation() == "before:0=5"
    assert plan.next_windows(5) == {A: (2, 5)}
    plan.read(A, 2, 5)
    assert plan.is_done and plan.continuation() is None


def test_windows_forwards_are_all_that_is_left():
    plan = planned(backwards=False)
    assert plan.next_windows(1) == {A: (2, 10), B: (0, 3)}
    plan.read(A, 2, 7)
    assert plan.continuation() == "after:0=7,1=0"
    assert not plan.is_done
