"""Commits follow the member's epoch for as long as it keeps what they are about (KIP-848)."""

from types import SimpleNamespace

import pytest

from storage_engine.client.changed import Changed
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.membership import CommitAnswered
from storage_engine.client.consumer.offset_commits import OffsetCommits, PendingCommit
from storage_engine.client.groups.group_requests import CommitRefusedError, MemberIdentity
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.messages.offset_commit import OffsetCommitResponse

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LONG_MS = 60_000
LATER_MS = 1 << 50


def member(epoch, joins=1):
    return MemberIdentity(member_id="m", generation=epoch, joins=joins)


class World:
    """Commits whose requests wait for the test's answers."""

    def __init__(self):
        self.sent = []
        self.refused: list[CommitAnswered] = []
        self.forgotten = 0
        calls = SimpleNamespace(send=self._send, forget_coordinator=self._forget)
        config = ConsumerConfig.of({"bootstrap.servers": "h:1", "group.id": "g"})
        self.commits = OffsetCommits(
            config,
            calls,
            Changed(),
            on_refused=self.refused.append,
            on_done=lambda _commit: None,
        )

    def _send(self, request, _timeout_ms, on_answer):
        self.sent.append((request.message, on_answer))

    def _forget(self):
        self.forgotten += 1

    def add(self, caller, *partitions, timeout_ms=LONG_MS):
        commit = PendingCommit(
            offsets=dict.fromkeys(partitions, 5),
            caller=caller,
            deadline=Deadline.after(timeout_ms),
        )
        self.commits.add(commit)
        return commit

    def send(self, known):
        """Sends what is due, and returns the epoch in the newest request."""
        self.commits.send(LATER_MS, known)
        return self.sent[-1][0].generation_id_or_member_epoch

    def answer(self, code):
        topic = OffsetCommitResponse.OffsetCommitResponseTopic
        row = topic.OffsetCommitResponsePartition(partition_index=0, error_code=int(code))
        self.sent[-1][1](OffsetCommitResponse(topics=[topic(name="t", partitions=[row])]), None)


@pytest.fixture
def world():
    return World()


def test_a_commit_is_sent_with_the_epoch_that_the_member_has_by_then(world):
    commit = world.add(member(3), T0)
    assert world.send(member(5)) == 5
    world.answer(ErrorCode.NONE)
    assert commit.done and commit.error is None


def test_a_commit_that_an_epoch_has_overtaken_is_sent_again_with_the_new_one(world):
    commit = world.add(member(3), T0)
    assert world.send(member(3)) == 3
    world.answer(ErrorCode.STALE_MEMBER_EPOCH)
    assert not commit.done
    assert world.refused == [CommitAnswered(error=ErrorCode.STALE_MEMBER_EPOCH, generation=3)]
    assert world.forgotten == 0
    assert world.send(member(4)) == 4
    world.answer(ErrorCode.NONE)
    assert commit.done and commit.error is None


def test_a_commit_of_partitions_that_the_member_has_let_go_keeps_its_epoch(world):
    """The coordinator has gone on to the next epoch once they may be another's."""
    gone, kept = world.add(member(3), T0), world.add(member(3), T1)
    world.commits.pin(member(4), [T0])
    assert world.send(member(5)) == 4
    world.answer(ErrorCode.STALE_MEMBER_EPOCH)
    assert isinstance(gone.error, CommitRefusedError)
    assert world.send(member(5)) == 5
    world.answer(ErrorCode.NONE)
    assert kept.error is None


def test_a_commit_is_not_repeated_for_what_was_let_go_while_it_was_under_way(world):
    commit = world.add(member(3), T0)
    world.send(member(3))
    world.commits.pin(member(3), None)
    world.answer(ErrorCode.STALE_MEMBER_EPOCH)
    with pytest.raises(CommitRefusedError, match="has lost its membership of group 'g'"):
        raise commit.error


def test_a_commit_of_a_membership_that_is_lost_is_refused(world):
    commit = world.add(member(3), T0)
    # Fenced meanwhile, it has joined anew, with the same epoch.
    assert world.send(member(3, joins=2)) == 3
    world.answer(ErrorCode.STALE_MEMBER_EPOCH)
    assert isinstance(commit.error, CommitRefusedError)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_who_is_no_member_any_more_hears_that_its_commit_is_refused(world, code):
    commit = world.add(member(3), T0)
    world.send(member(3))
    world.answer(code)
    assert isinstance(commit.error, CommitRefusedError) and commit.error.code is code
    assert world.refused == [CommitAnswered(error=code, generation=3)]


def test_another_coordinator_is_asked_after_an_error_that_passes_until_the_deadline(world):
    commit = world.add(member(3), T0)
    world.send(member(3))
    world.answer(ErrorCode.NOT_COORDINATOR)
    assert world.forgotten == 1 and not commit.done
    late = world.add(member(3), T0, timeout_ms=0)
    world.send(member(3))
    world.answer(ErrorCode.NONE)
    world.send(member(3))
    world.answer(ErrorCode.NOT_COORDINATOR)
    assert isinstance(late.error, DeadlineExceededError)


def test_an_error_that_is_not_about_the_membership_is_told_as_it_is(world):
    commit = world.add(member(3), T0)
    world.send(member(3))
    world.answer(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(commit.error, KafkaError)
    assert not isinstance(commit.error, CommitRefusedError)
    assert world.refused == []
