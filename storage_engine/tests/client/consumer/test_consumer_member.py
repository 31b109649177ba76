"""A consumer of group.protocol=consumer, and brokers of which the first coordinates its group."""

import re
from collections import deque
from typing import Any

import pytest

from storage_engine.client import Consumer, GroupError, TopicPartition
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis import consumer_group_heartbeat as beats
from storage_engine.protocol.apis.spec import VersionRange
from storage_engine.protocol.messages.offset_commit import OffsetCommitResponse
from storage_engine.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from storage_engine.tests.client.support.batches import append_records
from storage_engine.tests.client.support.coordinators import found_at

INTERVAL_MS = 50
NOT_COMMITTED = -1
POLLS = 200
RECORDS = 10


class FakeGroup:
    """The coordinator's part: it answers with the next of its `answers`, and then as before."""

    def __init__(self, fake):
        self.fake = fake
        self.answers: deque[Any] = deque()
        self.epoch = 1
        self.beats: list[beats.ConsumerGroupHeartbeatRequest] = []
        self.commits: list[Any] = []
        self.fetches: list[OffsetFetchRequest.OffsetFetchRequestGroup] = []
        self.fetch_codes: deque[ErrorCode] = deque()
        self.committed = NOT_COMMITTED
        fake.admin = self._answer

    def assign(self, topic: str, *partitions: int) -> beats.Assignment:
        row = beats.OwnedPartitions(topic_id=self.fake.topic_ids[topic], partitions=partitions)
        return beats.Assignment(topic_partitions=[row])

    def _answer(self, _broker_id: int, api: str, message: Any) -> Any:
        match api:
            case "FindCoordinator":
                return found_at(self.fake, 1)
            case "ConsumerGroupHeartbeat":
                return self._beat(message)
            case "OffsetFetch":
                return self._fetch(message)
            case _:
                assert api == "OffsetCommit"
                return self._commit(message)

    def _beat(self, message: Any) -> Any:
        self.beats.append(message)
        given = self.answers.popleft() if self.answers and message.member_epoch >= 0 else None
        if isinstance(given, ErrorCode):
            return beats.ConsumerGroupHeartbeatResponse(
                error_code=int(given), error_message="the coordinator's words"
            )
        self.epoch += given is not None
        return beats.ConsumerGroupHeartbeatResponse(
            member_id=message.member_id,
            member_epoch=self.epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=given,
        )

    def _fetch(self, message: OffsetFetchRequest) -> OffsetFetchResponse:
        (asked,) = message.groups
        self.fetches.append(asked)
        group = OffsetFetchResponse.OffsetFetchResponseGroup
        if self.fetch_codes:
            code = int(self.fetch_codes.popleft())
            return OffsetFetchResponse(groups=[group(group_id=asked.group_id, error_code=code)])
        topic = group.OffsetFetchResponseTopics
        row = topic.OffsetFetchResponsePartitions
        topics = [
            topic(
                name=each.name,
                partitions=[
                    row(partition_index=number, committed_offset=self.committed)
                    for number in each.partition_indexes
                ],
            )
            for each in asked.topics or ()
        ]
        return OffsetFetchResponse(groups=[group(group_id=asked.group_id, topics=topics)])

    def _commit(self, message: Any) -> OffsetCommitResponse:
        self.commits.append(message)
        is_old = message.generation_id_or_member_epoch < self.epoch
        code = ErrorCode.STALE_MEMBER_EPOCH if is_old else ErrorCode.NONE
        topic = OffsetCommitResponse.OffsetCommitResponseTopic
        row = topic.OffsetCommitResponsePartition
        return OffsetCommitResponse(
            topics=[
                topic(
                    name=each.name,
                    partitions=[
                        row(partition_index=part.partition_index, error_code=int(code))
                        for part in each.partitions
                    ],
                )
                for each in message.topics
            ]
        )


@pytest.fixture
def group(fake):
    fake.add_topic("t", [1, 2])
    for partition in (0, 1):
        for number in range(RECORDS):
            append_records(fake, [b"%d" % number], partition=partition)
    return FakeGroup(fake)


def member(fake, **settings):
    return Consumer(
        {
            "bootstrap.servers": fake.bootstrap_servers,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )


def polled_until(consumer, condition, records=None):
    for _ in range(POLLS):
        got = consumer.poll(50)
        if records is not None:
            records += got
        if condition():
            return
    raise AssertionError("it does not come about")


def test_what_a_member_keeps_is_read_on_while_it_lets_go_of_other_partitions(fake, group):
    group.answers += [group.assign("t", 0, 1)]
    heard: list[tuple[str, list[TopicPartition]]] = []
    with member(fake) as consumer:
        consumer.subscribe(
            ["t"],
            on_assigned=lambda partitions: heard.append(("assigned", partitions)),
            on_revoked=lambda partitions: heard.append(("revoked", partitions)),
        )
        records: list[Any] = []
        polled_until(consumer, lambda: len(records) == 2 * RECORDS, records)
        group.answers += [group.assign("t", 1)]
        polled_until(consumer, lambda: len(heard) == 2, records)
        append_records(fake, [b"more"], partition=1)
        polled_until(consumer, lambda: len(records) > 2 * RECORDS, records)
        assert [record.value for record in records[2 * RECORDS :]] == [b"more"]
        t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
        assert heard == [("assigned", [t0, t1]), ("revoked", [t0])]
        polled_until(consumer, lambda: told(group)[-1] == [1])
    assert told(group) == [[], [0, 1], [1]]
    assert group.beats[-1].member_epoch == -1


def test_a_member_that_gets_more_reads_on_what_it_has(fake, group):
    group.answers += [group.assign("t", 0)]
    with member(fake) as consumer:
        consumer.subscribe(["t"])
        records: list[Any] = []
        polled_until(consumer, lambda: len(records) == RECORDS, records)
        group.answers += [group.assign("t", 0, 1)]
        polled_until(consumer, lambda: len(records) == 2 * RECORDS, records)
        assert consumer.poll(200) == []
        assert {(record.partition, record.offset) for record in records} == {
            (partition, offset) for partition in (0, 1) for offset in range(RECORDS)
        }
        assert len(consumer.assignment) == 2


def test_a_member_asks_for_committed_offsets_by_its_epoch(fake, group):
    group.answers += [group.assign("t", 0)]
    group.committed = 7
    with member(fake) as consumer:
        consumer.subscribe(["t"])
        records: list[Any] = []
        polled_until(consumer, lambda: bool(records), records)
    assert records[0].offset == group.committed
    (asked,) = group.fetches
    assert (asked.member_id, asked.member_epoch) == (group.beats[0].member_id, 2)


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_whose_epoch_is_over_asks_for_committed_offsets_again(fake, group, code):
    group.answers += [group.assign("t", 0)]
    group.fetch_codes += [code]
    group.committed = 7
    with member(fake) as consumer:
        consumer.subscribe(["t"])
        records: list[Any] = []
        polled_until(consumer, lambda: bool(records), records)
    assert records[0].offset == group.committed
    assert len(group.fetches) == 2


def told(group):
    """The partitions that heartbeats have said, in their order."""
    return [
        [number for row in beat.topic_partitions for number in row.partitions]
        for beat in group.beats
        if beat.topic_partitions is not None
    ]


def test_only_what_has_changed_is_said_after_the_first_heartbeat(fake, group):
    group.answers += [group.assign("t", 0)]
    with member(fake, **{"group.remote.assignor": "range"}) as consumer:
        consumer.subscribe(["t"])
        polled_until(consumer, lambda: len(group.beats) > 3)
    first, *rest = group.beats
    assert (first.member_epoch, first.subscribed_topic_names) == (0, ["t"])
    assert (first.server_assignor, first.rebalance_timeout_ms) == ("range", 300_000)
    assert first.subscribed_topic_regex is None
    assert {beat.member_id for beat in group.beats} == {first.member_id}
    assert {beat.subscribed_topic_names for beat in rest} == {None}
    assert {beat.server_assignor for beat in rest} == {None}
    assert {beat.rebalance_timeout_ms for beat in rest} == {-1}


def test_a_commit_has_the_present_epoch_though_no_partitions_came_with_it(fake, group):
    group.answers += [group.assign("t", 0)]
    with member(fake) as consumer:
        consumer.subscribe(["t"])
        polled_until(consumer, lambda: consumer.assignment)
        group.epoch = 7
        consumer.commit({TopicPartition("t", 0): 3})
        assert group.commits[-1].generation_id_or_member_epoch == 7
        assert consumer.group_metadata().generation == 7


def test_who_is_fenced_loses_everything_and_comes_back(fake, group):
    group.answers += [group.assign("t", 0, 1)]
    heard: list[str] = []
    with member(fake) as consumer:
        consumer.subscribe(
            ["t"],
            on_assigned=lambda _: heard.append("assigned"),
            on_revoked=lambda _: heard.append("revoked"),
            on_lost=lambda _: heard.append("lost"),
        )
        polled_until(consumer, lambda: heard)
        group.answers += [ErrorCode.FENCED_MEMBER_EPOCH, group.assign("t", 0)]
        polled_until(consumer, lambda: len(heard) == 3)
        assert heard == ["assigned", "lost", "assigned"]
        assert consumer.assignment == {TopicPartition("t", 0)}
    first, second = [beat for beat in group.beats if beat.member_epoch == 0]
    assert first == second


def test_a_topic_that_brokers_do_not_know_yet_is_asked_for_again(fake, group):
    later = group.assign("t", 0)
    row = later.topic_partitions[0]
    fake.add_topic("late", [1])
    row.topic_id = fake.topic_ids["late"]
    partitions = fake.topics.pop("late")
    group.answers += [later]
    with member(fake) as consumer:
        consumer.subscribe(["t", "late"])
        polled_until(consumer, lambda: fake.count("Metadata") > 5)
        assert consumer.assignment == frozenset()
        fake.topics["late"] = partitions
        polled_until(consumer, lambda: consumer.assignment)
        assert consumer.assignment == {TopicPartition("late", 0)}


def test_the_text_of_a_pattern_is_sent_and_taken_back_when_names_take_its_place(fake, group):
    with member(fake) as consumer:
        consumer.subscribe(re.compile("t.*", re.IGNORECASE))
        polled_until(consumer, lambda: group.beats)
        assert group.beats[0].subscribed_topic_regex == "(?i)t.*"
        assert group.beats[0].subscribed_topic_names == []
        consumer.subscribe(["t"])
        polled_until(consumer, lambda: group.beats[-1].subscribed_topic_names or len(told(group)))
        polled_until(
            consumer,
            lambda: any(beat.subscribed_topic_names == ["t"] for beat in group.beats),
        )
    changed = next(beat for beat in group.beats if beat.subscribed_topic_names == ["t"])
    assert changed.subscribed_topic_regex == ""


def test_brokers_without_consumer_groups_are_an_error_that_says_what_to_do(fake, group):
    del fake.api_versions[beats.API.key]
    with member(fake) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(GroupError, match=r"raise group.version to 1 \('headrace features'\)"):
            polled_until(consumer, lambda: False)


def test_a_pattern_is_not_sent_to_brokers_that_would_not_see_it(fake, group):
    fake.api_versions[beats.API.key] = VersionRange(0, 0)
    with member(fake) as consumer:
        consumer.subscribe(re.compile("t"))
        with pytest.raises(GroupError, match="a pattern needs ConsumerGroupHeartbeat 1"):
            polled_until(consumer, lambda: False)
    assert all(beat.member_epoch < 0 for beat in group.beats)


def test_a_refusal_for_good_is_told_in_the_coordinators_words(fake, group):
    group.answers += [ErrorCode.UNSUPPORTED_ASSIGNOR]
    with member(fake) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(GroupError, match="group 'g': the coordinator's words"):
            polled_until(consumer, lambda: False)
