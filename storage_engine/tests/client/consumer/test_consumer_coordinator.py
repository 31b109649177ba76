"""A consumer that was not polled in time hands out nothing once it leaves its group; requests go on
while only some partitions are revoked; commits on their way are bounded (R-CLI2)."""

import threading
from dataclasses import replace

import pytest

from storage_engine.client.consumer import offset_commits
from storage_engine.client.consumer.classic_member import ClassicMember
from storage_engine.client.consumer.classic_membership import Stage
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_coordinator import ConsumerCoordinator
from storage_engine.client.consumer.membership import MembershipTick, Revoked
from storage_engine.client.consumer.offset_commits import PendingCommit
from storage_engine.client.groups.group_requests import NOBODY, MemberIdentity
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, monotonic_ms


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


@pytest.fixture
def idle(fake):
    """A coordinator whose thread does nothing any more."""
    config = ConsumerConfig.of({"bootstrap.servers": fake.bootstrap_servers, "group.id": "g"})
    coordinator = ConsumerCoordinator(config)
    coordinator._loop.stop()
    coordinator._loop.join()
    return coordinator


@pytest.mark.parametrize(("partitions", "goes_on"), [((TP,), True), (None, False)])
def test_a_request_under_way_goes_on_while_only_some_partitions_are_revoked(
    idle, monkeypatch, partitions, goes_on
):
    dropped: list[object] = []
    monkeypatch.setattr(idle._calls, "drop", dropped.append)
    idle._call = object()
    idle._carry_out([Revoked(lost=False, partitions=partitions)])
    assert (idle._call is not None) is goes_on
    assert len(dropped) == (not goes_on)


def test_a_commit_on_its_way_keeps_its_epoch_once_its_partitions_are_released(idle):
    caller = MemberIdentity(member_id="m", generation=3, joins=1)
    commit = PendingCommit(offsets={TP: 1}, caller=caller, deadline=Deadline.after(60_000))
    other = PendingCommit(
        offsets={TopicPartition("t", 1): 1}, caller=caller, deadline=Deadline.after(60_000)
    )
    idle._commits.add(commit)
    idle._commits.add(other)
    idle._known = replace(caller, generation=4)
    idle.released([TP])
    later = replace(caller, generation=5)
    assert commit.caller.now(later).generation == 4
    assert other.caller.now(later).generation == 5
