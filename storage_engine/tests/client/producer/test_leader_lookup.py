"""Leaders are looked for while batches wait, and no more often than retries need it."""

import pytest

from storage_engine.client.producer import leader_lookup
from storage_engine.client.producer.leader_lookup import LeaderLookup
from storage_engine.net.deadline import monotonic_ms, sleep_ms


@pytest.fixture
def lookup(cluster, monkeypatch):
    monkeypatch.setattr(leader_lookup, "_LEAST_MS", 10_000)
    return LeaderLookup(cluster)


def refreshed(lookup):
    """The topics that are gone, by a refresh that is due."""
    sleep_ms(max(0, lookup.due_at_ms - monotonic_ms()))
    return lookup.refresh_if_due([])


def test_only_topics_in_doubt_are_asked_for_and_then_no_more(fake, lookup):
    fake.add_topic("t", [1])
    fake.add_topic("u", [1])
    lookup.doubt("t")
    assert lookup.wanted
    assert refreshed(lookup) == []
    assert not lookup.wanted
    (asked,) = [each.message for each in fake.asked if each.api == "Metadata"]
    assert asked.topics == ["t"]


def test_a_second_refresh_waits_for_its_time(fake, lookup, monkeypatch):
    monkeypatch.setattr(leader_lookup, "pause_ms", lambda _tries: 60_000)
    fake.add_topic("t", [1])
    for _ in range(5):
        lookup.doubt("t")
        lookup.refresh_if_due([])
    assert fake.count("Metadata") == 1


def test_a_topic_that_stays_unknown_is_gone_after_a_while(fake, lookup):
    gone: list[str] = []
    tries = 0
    while not gone:
        lookup.doubt("t")
        gone = refreshed(lookup)
        tries += 1
        assert tries < 1_000
    assert gone == ["t"] and tries > 2
    fake.add_topic("t", [1])
    lookup.doubt("t")
    assert refreshed(lookup) == []
    del fake.topics["t"]
    lookup.doubt("t")
    assert refreshed(lookup) == [], "it is waited for anew"


def test_a_failed_refresh_is_no_error_but_kept_and_repeated(fake, lookup, monkeypatch):
    monkeypatch.setattr(leader_lookup, "_LEAST_MS", 300)
    port = fake.stop_broker(1)
    for broker_id in (2, 3):
        fake.stop_broker(broker_id)
    lookup.doubt("t")
    assert refreshed(lookup) == []
    assert "no broker answers" in lookup.last_error and lookup.wanted
    monkeypatch.setattr(leader_lookup, "_LEAST_MS", 10_000)
    fake.start_broker(1, port)
    fake.add_topic("t", [1])
    refreshed(lookup)
    assert not (lookup.last_error or lookup.wanted)
