"""Commits that nobody waits for: those on their way have a bound of their own (R-CLI2)."""

import threading

from storage_engine.client.consumer import consumer_coordinator
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_coordinator import NOBODY, ConsumerCoordinator
from storage_engine.core.ids import TopicPartition

MOST = 3
TP = TopicPartition("t", 0)


def test_who_commits_without_waiting_waits_when_too_many_are_on_their_way(fake, monkeypatch):
    monkeypatch.setattr(consumer_coordinator, "COMMITS_MAX", MOST)
    config = ConsumerConfig.of({"bootstrap.servers": fake.bootstrap_servers, "group.id": "g"})
    coordinator = ConsumerCoordinator(config)
    # None is answered until the test says so.
    monkeypatch.setattr(coordinator, "_send_commit", lambda _now_ms: None)
    commits = [coordinator.commit({TP: number}, NOBODY) for number in range(MOST)]
    more: list[object] = []
    waits = threading.Thread(target=lambda: more.append(coordinator.commit({TP: MOST}, NOBODY)))
    waits.start()
    waits.join(0.2)
    assert waits.is_alive() and not more
    coordinator._finish(commits[0], None)
    waits.join(30)
    assert len(more) == 1 and len(coordinator._commits) == MOST
    while coordinator._commits:
        coordinator._finish(coordinator._commits[0], None)
    coordinator.close(1_000)
