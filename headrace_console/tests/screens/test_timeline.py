"""The leaders of partitions over time."""

import pytest

from headrace_console.cluster.changes import TimelineEvent
from headrace_console.screens.timeline import (
    MOST_LANES,
    LoggedChange,
    TimelineFilter,
    logged_event,
    timeline,
)
from headrace_console.tests.made_snapshots import snapshot
from storage_engine.core.ids import TopicPartition

EVERYTHING = TimelineFilter()


def moved(at_ms: int, before: int, after: int, *, topic: str = "t0", partition: int = 0):
    return TimelineEvent(
        at_ms=at_ms,
        kind="no_leader" if after < 0 else "leader",
        words=f"{after} leads",
        topic=topic,
        partition=partition,
        before=str(before),
        after=str(after),
        epoch=at_ms,
    )


def shown(observed=(), logged=None, wanted=EVERYTHING, since_ms=0, **seen):
    return timeline(observed, logged, snapshot(**seen), wanted, since_ms)


def spans(document):
    return [
        [(span["leader"], span["from_ms"], span["until_ms"]) for span in lane["spans"]]
        for lane in document["lanes"]
    ]


def test_a_lane_has_who_led_from_the_first_look_to_now():
    document = shown([moved(10, 1, 2), moved(20, 2, -1), moved(30, -1, 3)])
    assert spans(document) == [[(1, 0, 10), (2, 10, 20), (None, 20, 30), (3, 30, None)]]
    assert [event["at_ms"] for event in document["events"]] == [30, 20, 10]
    assert (document["source"], document["resolution_ms"]) == ("observed", 2_000)


def test_the_partition_that_changed_most_comes_first_and_others_only_of_the_topic_asked_for():
    events = [moved(1, 1, 2, partition=1), moved(2, 1, 2), moved(3, 2, 1)]
    lanes = shown(events, partitions=3)["lanes"]
    assert [lane["partition"] for lane in lanes] == [0, 1]
    wanted = TimelineFilter(topic="t0")
    lanes = shown(events, wanted=wanted, partitions=3)["lanes"]
    assert [lane["partition"] for lane in lanes] == [0, 1, 2]
    assert lanes[2]["spans"] == [{"leader": 1, "from_ms": 0, "until_ms": None, "epoch": 4}]
    many = shown(wanted=wanted, partitions=MOST_LANES + 5)
    assert len(many["lanes"]) == MOST_LANES


@pytest.mark.parametrize(
    ("conditions", "times"),
    [
        ({"since_ms": 20}, [20, 30]),
        ({"until_ms": 20}, [10]),
        ({"topic": "t1"}, [30]),
        ({"partition": 1}, [20]),
        ({"broker": 3}, [20]),
        ({"broker": 1}, [10, 30]),
        ({"limit": 1}, [30]),
    ],
)
def test_events_meet_all_conditions_and_the_newest_are_shown(conditions, times):
    events = [moved(10, 1, 2), moved(20, 2, 3, partition=1), moved(30, 2, 1, topic="t1")]
    document = shown(events, wanted=TimelineFilter(**conditions), topics=2)
    assert sorted(event["at_ms"] for event in document["events"]) == times


def test_the_logs_of_brokers_replace_what_the_console_saw_of_partitions_and_hide_other_topics():
    gone = TimelineEvent(at_ms=5, kind="broker_gone", words="broker 3 left", broker=3)
    logged = [moved(8, 1, 2), moved(9, 1, 2, topic="secret")]
    document = shown([moved(7, 1, 2), gone], logged)
    assert [event["at_ms"] for event in document["events"]] == [8, 5]
    assert (document["source"], document["resolution_ms"]) == ("brokers", 0)


@pytest.mark.parametrize(
    ("text", "kind", "after", "epoch"),
    [
        ("became leader partition=t-0 leader=2 leader_epoch=7 isr=[2]", "leader", "2", 7),
        ("isr changed partition=t-0 leader_epoch=7 isr=[1, 2]", "isr", "1, 2", 7),
        ("became follower partition=t-0 leader=1", "state", None, None),
        ("deleted partition=t-0 leader_epoch=x", "state", None, None),
    ],
)
def test_a_line_of_a_log_is_an_event_in_the_brokers_words(text, kind, after, epoch):
    event = logged_event(LoggedChange(9, 2, TopicPartition("t", 0), text))
    assert (event.kind, event.after, event.epoch, event.at_ms) == (kind, after, epoch, 9)
    assert event.words == f"broker 2: {text}"
