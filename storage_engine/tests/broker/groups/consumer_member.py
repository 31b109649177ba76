"""A member of a consumer group that does what its coordinator tells it, in simulated time."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis import consumer_group_describe, consumer_group_heartbeat
from storage_engine.protocol.apis.consumer_group_describe import DescribedConsumerGroup
from storage_engine.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedPartitions,
)
from storage_engine.protocol.messages import offset_commit, offset_fetch
from storage_engine.tests.broker.groups.test_consumer_groups import GROUP, GroupClient

BEAT_MS = 1_000


class ConsumerMember:
    def __init__(
        self,
        cluster: SimulatedCluster,
        member_id: str,
        topics: Sequence[str] | None = ("a",),
        *,
        pattern: str | None = None,
        group: str = GROUP,
        instance_id: str | None = None,
    ) -> None:
        self.client = GroupClient(cluster, group)
        self.member_id = member_id
        self.topics = topics
        self.pattern = pattern
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: dict[UUID, list[int]] = {}

    def request(self, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat; the first of a member says all of it."""
        given: dict[str, Any] = {
            "group_id": self.client.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "topic_partitions": [
                OwnedPartitions(topic_id=topic, partitions=numbers)
                for topic, numbers in self.owned.items()
            ],
        }
        if not self.epoch:
            given["rebalance_timeout_ms"] = 30_000
            given["subscribed_topic_names"] = self.topics
            given["subscribed_topic_regex"] = self.pattern
        return ConsumerGroupHeartbeatRequest(**{**given, **fields})

    def ask(self, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        answer = self.client.ask(consumer_group_heartbeat.API, version, self.request(**fields))
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def beat(self, version: int = 1, **fields: Any) -> ErrorCode:
        """Send a heartbeat, and take up its answer."""
        answer = self.ask(version, **fields)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            self.member_id = answer.member_id or self.member_id
            if answer.assignment is not None:
                self.owned = {
                    each.topic_id: list(each.partitions)
                    for each in answer.assignment.topic_partitions
                }
        return ErrorCode.of(answer.error_code)

    @property
    def partitions(self) -> list[int]:
        """The numbers of its partitions, of all topics."""
        return sorted(number for numbers in self.owned.values() for number in numbers)

    def leave(self, epoch: int = -1) -> ErrorCode:
        return ErrorCode.of(self.ask(member_epoch=epoch).error_code)

    def commit(self, offset: int, *, epoch: int | None = None, version: int = 9) -> ErrorCode:
        request = self.client.commit_request(offset)
        request.member_id = self.member_id
        request.generation_id_or_member_epoch = self.epoch if epoch is None else epoch
        answer = self.client.ask(offset_commit.API, version, request, _code_of)
        return ErrorCode.of(_code_of(answer))

    def fetch(self, *, epoch: int | None = None) -> ErrorCode:
        """OffsetFetch with the member's epoch; the group's error."""
        group = offset_fetch.OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=self.client.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            topics=None,
        )
        request = offset_fetch.OffsetFetchRequest(groups=[group])
        answer = self.client.ask(offset_fetch.API, 9, request, lambda a: a.groups[0].error_code)
        return ErrorCode.of(answer.groups[0].error_code)

    def described(self, **fields: Any) -> DescribedConsumerGroup:
        given = {"group_ids": [self.client.group], **fields}
        request = consumer_group_describe.ConsumerGroupDescribeRequest(**given)
        answer = self.client.ask(
            consumer_group_describe.API, 1, request, lambda a: a.groups[0].error_code
        )
        (group,) = answer.groups
        assert isinstance(group, DescribedConsumerGroup)
        return group


def settle(*members: ConsumerMember, rounds: int = 10) -> None:
    """Have all of them send heartbeats until nothing changes any more."""
    for _ in range(rounds):
        for member in members:
            assert member.beat() is ErrorCode.NONE
        members[0].client.cluster.loop.run_for(BEAT_MS)


def _code_of(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)
