"""A consumer that was not polled in time hands out nothing once it leaves its group, and commits on
their way are bounded (R-CLI2)."""

import threading

from storage_engine.client.consumer import offset_commits
from storage_engine.client.consumer.classic_member import ClassicMember
from storage_engine.client.consumer.classic_membership import Stage
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_coordinator import NOBODY, ConsumerCoordinator
from storage_engine.client.consumer.membership import MembershipTick
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_ms


def test_a_poll_while_the_member_leaves_waits_for_the_end_of_what_it_had(fake, monkeypatch):
    config = ConsumerConfig.of({"bootstrap.servers": fake.bootstrap_servers, "group.id": "g"})
    coordinator = ConsumerCoordinator(config)
    # From here on this thread does its work.
    coordinator._loop.stop()
    coordinator._loop.join()
    assert isinstance(coordinator._member, ClassicMember)
    member = coordinator._member._membership
    member.stage, member.member_id, member.generation, member.owns = Stage.MEMBER, "m", 1, True
    told: list[bool] = []
    monkeypatch.setattr(
        coordinator, "_leave", lambda _request: told.append(coordinator._poll_timed_out)
    )
    coordinator._step(MembershipTick(now_ms=monotonic_ms() + config.max_poll_interval_ms))
    assert told == [True]


MOST = 3

TP = TopicPartition("t", 0)


def test_who_commits_without_waiting_waits_when_too_many_are_on_their_way(fake, monkeypatch):
    monkeypatch.setattr(offset_commits, "COMMITS_MAX", MOST)
    config = ConsumerConfig.of({"bootstrap.servers": fake.bootstrap_servers, "group.id": "g"})
    coordinator = ConsumerCoordinator(config)
    # None is answered until the test says so.
    monkeypatch.setattr(coordinator._commits, "send", lambda _now_ms, _known: None)
    commits = [coordinator.commit({TP: number}, NOBODY) for number in range(MOST)]
    more: list[object] = []
    waits = threading.Thread(target=lambda: more.append(coordinator.commit({TP: MOST}, NOBODY)))
    waits.start()
    waits.join(0.2)
    assert waits.is_alive() and not more
    coordinator._commits._finish(commits[0], None)
    waits.join(30)
    assert len(more) == 1 and len(coordinator._commits) == MOST
    while coordinator._commits:
        coordinator._commits._finish(coordinator._commits._queue[0], None)
    coordinator.close(1_000)
