"""Reads the committed offsets of a group, and commits offsets for a program that assigns its
partitions itself.

The caller is no member of the group (generation -1, no member id), like Kafka's "simple consumers".
After a lost or retriable answer the same request goes to the group's present coordinator, until the
deadline. Source: the OffsetFetch and OffsetCommit APIs. It is not thread-safe.
"""

from collections.abc import Mapping

from storage_engine.client.cluster import Cluster
from storage_engine.client.coordinator_lookup import GROUP, ask_coordinator, find_coordinator
from storage_engine.client.groups.group_requests import (
    MemberIdentity,
    commit_request,
    refused_commit,
)
from storage_engine.client.retry import Retry
from storage_engine.core.errors import (
    DeadlineExceededError,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.messages.offset_fetch import API as OFFSET_FETCH
from storage_engine.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_FETCH_VERSION = 7
"""The newest for one group at a time."""

_NO_MEMBER = MemberIdentity(member_id="", generation=-1)


def committed_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """All committed offsets of the group: the next offset to read of each partition."""
    _, answer = ask_coordinator(
        cluster,
        GROUP,
        group,
        OFFSET_FETCH,
        OffsetFetchRequest(group_id=group, topics=None, require_stable=True),
        _worst_fetched,
        version=_FETCH_VERSION,
    )
    return {
        TopicPartition(topic.name, row.partition_index): row.committed_offset
        for topic in answer.topics
        for row in topic.partitions
        if row.committed_offset >= 0
    }


def _worst_fetched(answer: OffsetFetchResponse) -> int:
    rows = [row.error_code for topic in answer.topics for row in topic.partitions]
    return int(answer.error_code or next(filter(None, rows), 0))


class OffsetCommitter:
    """Stores offsets of one group."""

    def __init__(self, cluster: Cluster, group: str, *, deadline_ms: int | None = None) -> None:
        """`deadline_ms` bounds a commit with its retries; None: the cluster's does."""
        self._cluster = cluster
        self.group = group
        self._deadline_ms = deadline_ms or cluster.deadline_ms
        self._coordinator: int | None = None

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits the next offset to read of each partition. Raises KafkaError for the first
        partition that is refused for good; the others are committed all the same. A group that has
        members refuses all."""
        if not offsets:
            return
        request = commit_request(self.group, _NO_MEMBER, offsets)
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
                refused = refused_commit(answer)
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
