"""How a follower takes the answers of its leader: in turns, each partition once, over the channel
that the partition has by then (R-REP2)."""

from typing import Any

import pytest

from simulation.world.clock import SimulatedLoop
from storage_engine.broker import unexpected
from storage_engine.broker.replicas import answer_turns
from storage_engine.broker.replicas.durable_acks import DurableAcks
from storage_engine.broker.replicas.fetcher import PeerFetcher
from storage_engine.broker.replicas.followed_partition import (
    CATCH_UP_CHANNEL,
    CHANNEL,
    DURABLE_CATCH_UP_CHANNEL,
    DURABLE_CHANNEL,
)
from storage_engine.broker.replicas.leader_answers import LeaderAnswers
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.protocol.apis.fetch import FetchPartitionResponse, FetchResponse
from storage_engine.protocol.fetch_session import NO_SESSION
from storage_engine.protocol.records.record_batch import patch
from storage_engine.tests.broker.replicas.lone_partition import (
    BACKOFF_MS,
    ENDPOINT,
    fetchers_of,
    follower_of,
    partition_ports,
)
from storage_engine.tests.log.support import ManualClock
from storage_engine.tests.protocol.hostile_batches import GOOD

TURNS_MS = 20
"""Enough for all turns of the loop that follow from something, flushes included."""


RECORDS = 3
"""In a GOOD batch."""


class Leader:
    """A Transport that is answered by hand."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, Any]] = []

    def request(self, _to: Any, channel: str, *request: Any, on_reply: Any, **_more: Any) -> None:
        self.asked.append((channel, request[2], on_reply))

    def disconnect(self, *_: Any) -> None:
        """Nothing is open."""


class Follower:
    """A FetcherManager with some partitions."""

    def __init__(
        self,
        folder: Any,
        partitions: int,
        *,
        durable: bool = False,
        max_bytes: int = len(GOOD),
    ) -> None:
        self.loop, self.leader = SimulatedLoop(), Leader()
        ports = partition_ports(self.loop, flush=DurableAcks(self.loop, self.loop).flush)
        self.partitions = []
        for number in range(partitions):
            tp = TopicPartition("t", number)
            log = PartitionLog.open(folder / str(tp), tp, LogConfig(), clock=ManualClock())
            self.partitions.append(follower_of(log, ports, flush_before_ack=durable))
        self.fetchers = fetchers_of(self.loop, self.leader, *self.partitions, max_bytes=max_bytes)
        self.loop.run_for(TURNS_MS)

    def refuse(self) -> None:
        """The leader does not know yet that it leads."""
        _, request, on_reply = self.leader.asked.pop(0)
        code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        on_reply(
            FetchResponse(
                partitions=[
                    FetchPartitionResponse(wanted.topic, wanted.partition, error_code=code)
                    for wanted in request.partitions
                ]
            )
        )

    def answer(
        self,
        high_watermark: int,
        *,
        twice: bool = False,
        session_id: int = NO_SESSION,
        batches: int = 1,
        damaged: int | None = None,
    ) -> None:
        """Every partition asked for gets the records that follow. `damaged`: the number of the
        batch that is not as it was sent."""
        _, request, on_reply = self.leader.asked.pop(0)
        answers = []
        for wanted in request.partitions:
            records = bytearray()
            for number in range(batches):
                batch = bytearray(GOOD)
                first = wanted.fetch_offset + number * RECORDS
                patch(batch, 0, base_offset=first, leader_epoch=0)
                if number == damaged:
                    batch[-1] ^= 1
                records += batch
            answer = FetchPartitionResponse(
                wanted.topic, wanted.partition, high_watermark=high_watermark,
                log_start_offset=0, records=memoryview(records),
            )  # fmt: skip
            answers += [answer, answer] if twice else [answer]
        on_reply(FetchResponse(partitions=answers, session_id=session_id))

    @property
    def ends(self) -> list[int]:
        return [partition.log.log_end_offset for partition in self.partitions]

    @property
    def channels(self) -> list[str]:
        return [channel for channel, _, _ in self.leader.asked]

    def close(self) -> None:
        self.fetchers.close()
        for partition in self.partitions:
            partition.log.close_without_flush()


def test_an_answer_is_taken_in_turns_between_which_others_are_served(tmp_path):
    follower = Follower(tmp_path, 3)
    seen: list[list[int]] = []
    follower.answer(high_watermark=3)
    for _ in range(3):
        follower.loop.call_soon(lambda: seen.append(follower.ends))
    assert follower.ends == [3, 0, 0]
    assert follower.leader.asked == []
    follower.loop.run_for(TURNS_MS)
    assert seen[0] == [3, 3, 0]
    assert follower.ends == [3, 3, 3]
    assert follower.channels == [CHANNEL]
    follower.close()


def test_an_answer_that_brings_nothing_is_taken_in_turns_too(tmp_path, monkeypatch):
    monkeypatch.setattr(answer_turns, "PARTITIONS_PER_TURN", 2)
    taken: list[TopicPartition] = []
    take = LeaderAnswers.take

    def noted(answers: Any, followed: Any, answer: Any) -> int:
        taken.append(followed.topic_partition)
        return take(answers, followed, answer)

    monkeypatch.setattr(LeaderAnswers, "take", noted)
    follower = Follower(tmp_path, 5)
    follower.refuse()
    assert len(taken) == 2, "others have their turn before the rest"
    follower.loop.run_for(TURNS_MS)
    assert len(taken) == 5
    follower.close()


@pytest.fixture
def two_batches_a_turn(tmp_path, monkeypatch):
    """Followers of three partitions that catch up, for which bytes set no bound."""
    monkeypatch.setattr(answer_turns, "BATCHES_PER_TURN", 2)
    follower = Follower(tmp_path, 3, max_bytes=1 << 20)
    yield follower
    follower.close()


def test_small_batches_are_taken_in_turns_however_few_bytes_they_have(two_batches_a_turn):
    follower = two_batches_a_turn
    seen: list[list[int]] = []

    def look() -> None:
        seen.append(follower.ends)
        if len(seen) < 5:
            follower.loop.call_soon(look)

    follower.answer(high_watermark=9, batches=3)
    look()
    follower.loop.run_for(TURNS_MS)
    assert seen == [[6, 0, 0], [9, 3, 0], [9, 9, 0], [9, 9, 6], [9, 9, 9]]
    assert follower.channels == [CHANNEL], "the next fetch waits for the rest"


def test_a_partition_changes_its_channel_after_the_rest_of_its_batches(two_batches_a_turn):
    follower = two_batches_a_turn
    follower.answer(high_watermark=9, batches=3)
    assert follower.channels == []
    follower.loop.run_for(TURNS_MS)
    assert follower.channels == [CHANNEL], "none is behind at the end of its answer"
    follower.answer(high_watermark=99, batches=3)
    follower.loop.run_for(TURNS_MS)
    assert follower.ends == [18, 18, 18]
    assert set(follower.channels) == {CATCH_UP_CHANNEL}


def test_the_rest_is_not_taken_by_who_follows_anew(two_batches_a_turn):
    follower = two_batches_a_turn
    follower.answer(high_watermark=9, batches=3)
    follower.fetchers.add(follower.partitions[0], ENDPOINT)
    follower.fetchers.wake()
    follower.loop.run_for(TURNS_MS)
    assert follower.ends == [6, 9, 9]
    asked = [
        (wanted.partition, wanted.fetch_offset)
        for _, request, _ in follower.leader.asked
        for wanted in request.partitions
    ]
    assert sorted(asked) == [(0, 6), (1, 9), (2, 9)]


def test_what_came_before_a_damaged_batch_is_kept(two_batches_a_turn):
    follower = two_batches_a_turn
    follower.answer(high_watermark=15, batches=5, damaged=2)
    follower.loop.run_for(TURNS_MS)
    assert follower.ends == [6, 6, 6]
    follower.loop.run_for(BACKOFF_MS + TURNS_MS)
    (_, request, _) = follower.leader.asked[-1]
    assert [wanted.was_damaged for wanted in request.partitions] == [True] * 3
    assert [wanted.fetch_offset for wanted in request.partitions] == [6] * 3


def test_what_is_left_of_an_answer_that_can_not_be_taken_is_asked_for_again(tmp_path, monkeypatch):
    """In its session the leader tells a high watermark once."""

    def fails(_fetcher: Any, _leaving: Any) -> None:
        raise RuntimeError("as nothing should")

    monkeypatch.setattr(unexpected, "is_fatal", False)
    monkeypatch.setattr(PeerFetcher, "_hand_over", fails)
    follower = Follower(tmp_path, 3)
    follower.answer(high_watermark=9, session_id=7)
    follower.loop.run_for(TURNS_MS)
    assert follower.ends == [3, 0, 0]
    (_, request, _) = follower.leader.asked[-1]
    assert [wanted.partition for wanted in request.partitions] == [0, 1, 2]
    follower.close()


def test_a_partition_that_is_answered_twice_is_taken_once(tmp_path):
    follower = Follower(tmp_path, 2)
    follower.answer(high_watermark=9, twice=True)
    follower.loop.run_for(TURNS_MS)
    assert follower.ends == [3, 3]
    follower.close()


def test_a_partition_that_is_let_go_in_the_middle_of_an_answer_takes_nothing_of_it(tmp_path):
    follower = Follower(tmp_path, 3)
    follower.answer(high_watermark=3)
    gone = follower.partitions[2]
    follower.fetchers.remove(gone.topic_partition)
    again = follower.partitions[1]
    follower.fetchers.add(again, ENDPOINT)
    follower.fetchers.wake()
    follower.loop.run_for(TURNS_MS)
    assert follower.ends == [3, 0, 0]
    (_, request, _) = follower.leader.asked[-1]
    assert [wanted.partition for wanted in request.partitions] == [0, 1]
    follower.close()


def test_the_end_of_all_following_in_the_middle_of_an_answer_ends_the_loop(tmp_path):
    follower = Follower(tmp_path, 3)
    follower.answer(high_watermark=9)
    for partition in follower.partitions:
        follower.fetchers.remove(partition.topic_partition)
    follower.loop.run_for(2000)
    assert follower.ends == [3, 0, 0]
    assert follower.leader.asked == []
    follower.close()


@pytest.mark.parametrize(
    ("durable", "normal", "catch_up"),
    [
        (False, CHANNEL, CATCH_UP_CHANNEL),
        (True, DURABLE_CHANNEL, DURABLE_CATCH_UP_CHANNEL),
    ],
)
def test_durable_partitions_have_channels_of_their_own(tmp_path, durable, normal, catch_up):
    follower = Follower(tmp_path, 1, durable=durable)
    assert follower.channels == [normal]
    follower.answer(high_watermark=9)
    follower.loop.run_for(TURNS_MS)
    assert follower.channels == [catch_up]
    follower.answer(high_watermark=6)
    follower.loop.run_for(TURNS_MS)
    assert follower.channels == [normal]
    # One that falls behind again leaves again.
    follower.answer(high_watermark=12)
    follower.loop.run_for(TURNS_MS)
    assert follower.channels == [catch_up]
    follower.close()
