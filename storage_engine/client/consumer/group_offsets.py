"""Stores offsets under the name of a group, for a program that assigns its partitions itself.

Rule: the group has no members (generation -1, no member id), as Kafka's "simple consumers" have
none; a lost or retriable answer is followed by the same request, at whoever coordinates the group
by then, until the deadline. Source: the OffsetCommit API. Not for several threads at once.
"""

from collections.abc import Mapping

from storage_engine.client.cluster import Cluster
from storage_engine.client.consumer import group_requests
from storage_engine.client.coordinator_lookup import GROUP, find_coordinator
from storage_engine.client.retry import Retry
from storage_engine.core.errors import (
    DeadlineExceededError,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline

_NOBODY = group_requests.Caller(member_id="", generation=-1)


class GroupOffsets:
    """What one group has read."""

    def __init__(self, cluster: Cluster, group: str, *, deadline_ms: int | None = None) -> None:
        """`deadline_ms`: of a commit with its retries; None: the cluster's."""
        self._cluster = cluster
        self.group = group
        self._deadline_ms = deadline_ms or cluster.deadline_ms
        self._coordinator: int | None = None

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """By partition the next offset to read. KafkaError for the first partition that is refused
        for good; the others are stored all the same. A group that has members refuses all."""
        if not offsets:
            return
        request = group_requests.commit(self.group, _NOBODY, offsets)
        deadline = Deadline.after(self._deadline_ms)
        retry = Retry(f"OffsetCommit of group '{self.group}'", deadline)
        while True:
            failure: HeadraceError
            try:
                answer = self._cluster.request(
                    self._find(deadline),
                    request.spec,
                    request.message,
                    timeout_ms=max(1, min(deadline.left_ms, self._cluster.request_timeout_ms)),
                )
            except (KafkaError, DeadlineExceededError) as error:
                failure = error
            else:
                refused = group_requests.refused_commit(answer)
                if refused is None:
                    return
                partition, code = refused
                failure = KafkaError(
                    f"offsets of group '{self.group}', {partition}: {code.meaning}", code
                )
            self._coordinator = None
            retry.pause(failure)

    def _find(self, deadline: Deadline) -> int:
        if self._coordinator is not None:
            return self._coordinator
        self._coordinator = find_coordinator(
            self._cluster, GROUP, self.group, f"group '{self.group}'", deadline
        )
        return self._coordinator
