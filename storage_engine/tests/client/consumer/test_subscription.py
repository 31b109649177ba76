"""The topics of a subscription, and when they are looked for again."""

import re

import pytest

from storage_engine.client.consumer import subscription
from storage_engine.client.consumer.subscription import (
    MISSING_TOPIC_REFRESH_MS,
    Subscription,
    TopicCounts,
)
from storage_engine.core.errors import HeadraceError

MAX_AGE_MS = 60_000


@pytest.fixture
def counts(cluster, monkeypatch):
    monkeypatch.setattr(subscription, "REFRESH_MS", 10_000)
    return TopicCounts(cluster, max_age_ms=MAX_AGE_MS)


def test_a_pattern_matches_whole_names_and_no_internal_topic(fake, counts):
    for topic in ("clicks", "clicks2", "__consumer_offsets"):
        fake.add_topic(topic, [1])
    assert counts.subscribe(Subscription(pattern=re.compile("clicks|.*offsets")), 0) == {"clicks"}


def test_what_other_members_want_is_counted_too(fake, counts):
    fake.add_topic("t", [1, 2])
    fake.add_topic("u", [1])
    assert counts.subscribe(Subscription(frozenset({"t"})), 0) == {"t"}
    assert counts.watch(["u"], 0) == {"t": 2, "u": 1}
    assert counts.subscribe(Subscription(frozenset({"t"})), 0) == {"t"}


def test_a_missing_topic_is_looked_for_often_until_it_is_there(fake, counts):
    counts.subscribe(Subscription(frozenset({"t"})), 0)
    assert counts.due_ms() == MISSING_TOPIC_REFRESH_MS
    fake.add_topic("t", [1])
    assert not counts.changed(MISSING_TOPIC_REFRESH_MS - 1), "it is not due"
    assert counts.changed(MISSING_TOPIC_REFRESH_MS)
    assert counts.due_ms() == MISSING_TOPIC_REFRESH_MS + MAX_AGE_MS
    fake.add_topic("u", [1])
    assert not counts.changed(2 * MAX_AGE_MS), "that is no topic of the subscription"


def test_a_request_that_fails_counts_for_the_next_ones_time(fake, counts, monkeypatch):
    counts.subscribe(Subscription(frozenset({"t"})), 0)
    for broker_id in (1, 2, 3):
        fake.stop_broker(broker_id)
    monkeypatch.setattr(subscription, "REFRESH_MS", 200)
    with pytest.raises(HeadraceError):
        counts.changed(MISSING_TOPIC_REFRESH_MS)
    assert counts.due_ms() == 2 * MISSING_TOPIC_REFRESH_MS
