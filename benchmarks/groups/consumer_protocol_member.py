"""A member of a consumer group as the protocol has it (KIP-848): no IO and no clock.

    answer with another assignment -> revoke and take -> at once a heartbeat with what is owned

Rule: what has not changed is not sent, as Kafka's own client does.
"""

from uuid import UUID, uuid4

from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedPartitions,
)
from storage_engine.tools.errors import CommandError

VERSION = 1
REBALANCE_TIMEOUT_MS = 300_000
RETRY_S = 0.1
AT_ONCE_S = 0.0

_LEAVES = -1
NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""The errors of a coordinator that has not loaded the group."""
_JOINS_ANEW = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class ConsumerProtocolMember:
    """A member that subscribes to one topic."""

    def __init__(self, group: str, topic: str) -> None:
        self._group = group
        self._topic = topic
        self.member_id = str(uuid4())
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self._topic_id: UUID | None = None
        self._is_unacknowledged = False

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """Return the request that is due now."""
        if not self.epoch:
            return ConsumerGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self.member_id,
                member_epoch=0,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                subscribed_topic_names=[self._topic],
                topic_partitions=[],
            )
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            topic_partitions=self._told() if self._is_unacknowledged else None,
        )

    def _told(self) -> list[OwnedPartitions]:
        if self._topic_id is None or not self.owned:
            return []
        return [OwnedPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))]

    def farewell(self) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat with which the member leaves."""
        self.owned = frozenset()
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self.member_id, member_epoch=_LEAVES
        )

    def answered(self, answer: ConsumerGroupHeartbeatResponse) -> float:
        """Take the answer to the last heartbeat, and return the seconds until the next.
        CommandError for a refusal."""
        if answer.error_code in NOT_YET:
            return RETRY_S
        if answer.error_code in _JOINS_ANEW:
            self.epoch, self.owned, self._is_unacknowledged = 0, frozenset(), False
            return AT_ONCE_S
        if answer.error_code:
            name = ErrorCode.of(answer.error_code).name
            raise CommandError(f"a heartbeat of the benchmark got {name}: {answer.error_message}")
        self.epoch = answer.member_epoch
        self._is_unacknowledged = False
        if answer.assignment is not None:
            given = answer.assignment.topic_partitions
            target = frozenset(number for each in given for number in each.partitions)
            if target != self.owned:
                self._topic_id = given[0].topic_id if given else self._topic_id
                self.owned = target
                self._is_unacknowledged = True
                return AT_ONCE_S
        return answer.heartbeat_interval_ms / 1000
