"""Reads the committed offsets of a group, and commits offsets for a program that assigns its
partitions itself.

Who commits is no member of the group (generation -1, no id), like Kafka's "simple consumers".
After a lost or retriable answer the same request goes to the group's present coordinator, until the
deadline. Source: the OffsetFetch and OffsetCommit APIs. It is not thread-safe.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from storage_engine.client.asking import GROUP, ask_coordinator, error_from
from storage_engine.client.cluster import Cluster
from storage_engine.client.groups.group_requests import (
    NOBODY,
    MemberIdentity,
    commit_request,
    refused_commit,
)
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import TopicPartition, numbers_by_topic
from storage_engine.protocol.messages.offset_commit import OffsetCommitResponse
from storage_engine.protocol.messages.offset_fetch import API as OFFSET_FETCH
from storage_engine.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_FETCH_VERSION = 7
"""The newest version for one group at a time."""

_MEMBER_FETCH_VERSION = 9
"""The first version with the member's epoch."""

_TopicT = TypeVar("_TopicT")
_Topic = OffsetFetchRequest.OffsetFetchRequestTopic
_Group = OffsetFetchRequest.OffsetFetchRequestGroup
_Answered = OffsetFetchResponse.OffsetFetchResponseGroup


def committed_offsets(
    cluster: Cluster,
    group: str,
    partitions: Collection[TopicPartition] | None = None,
    member: MemberIdentity = NOBODY,
) -> dict[TopicPartition, int]:
    """The committed offset of each of these partitions (None: of all that have one): the next one
    to read. Empty when the group does not exist. Waits for the end of transactions that commit
    offsets; where no partitions are named, brokers of Kafka overlook those that had none before.

    A `member` of the consumer protocol gets none by another epoch than it has: STALE_MEMBER_EPOCH,
    or UNKNOWN_MEMBER_ID."""
    asked = None if partitions is None else numbers_by_topic(partitions)
    if member.member_id:
        version = _MEMBER_FETCH_VERSION
        message = OffsetFetchRequest(
            groups=[
                _Group(
                    group_id=group,
                    member_id=member.member_id,
                    member_epoch=member.generation,
                    topics=_topics(_Group.OffsetFetchRequestTopics, asked),
                )
            ],
            require_stable=True,
        )
    else:
        version = _FETCH_VERSION
        message = OffsetFetchRequest(
            group_id=group, topics=_topics(_Topic, asked), require_stable=True
        )

    def answered(answer: OffsetFetchResponse) -> OffsetFetchResponse | _Answered:
        return answer.groups[0] if member.member_id else answer

    _, answer = ask_coordinator(
        cluster,
        GROUP,
        group,
        OFFSET_FETCH,
        message,
        lambda answer: worst_error(group, answered(answer).error_code, answered(answer).topics),
        version=version,
    )
    return {
        TopicPartition(topic.name, row.partition_index): row.committed_offset
        for topic in answered(answer).topics
        for row in topic.partitions
        if row.committed_offset >= 0
    }


def _topics(
    row_class: Callable[..., _TopicT], asked: Mapping[str, Sequence[int]] | None
) -> list[_TopicT] | None:
    if asked is None:
        return None
    return [row_class(name=name, partition_indexes=numbers) for name, numbers in asked.items()]


class _Row(Protocol):
    error_code: int


class _AnsweredTopic(Protocol):
    @property
    def partitions(self) -> Sequence[_Row]: ...


def worst_error(group: str, code: int, topics: Iterable[_AnsweredTopic]) -> KafkaError | None:
    """Return the error of the whole answer, else the first error of a partition; None without
    one."""
    rows = (row.error_code for topic in topics for row in topic.partitions)
    return error_from(code or next(filter(None, rows), 0), what=f"group '{group}'")


class OffsetCommitter:
    """Stores offsets of one group."""

    def __init__(self, cluster: Cluster, group: str, *, deadline_ms: int | None = None) -> None:
        """`deadline_ms` bounds a commit with its retries; None: the cluster's does."""
        self._cluster = cluster
        self.group = group
        self._deadline_ms = deadline_ms

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits the next offset to read of each partition. KafkaError for the first partition
        whose offset the coordinator refuses for good; the other offsets are committed all the same.
        A group that has members refuses every offset."""
        if not offsets:
            return
        request = commit_request(self.group, NOBODY, offsets)

        def error_of(answer: OffsetCommitResponse) -> KafkaError | None:
            if (refused := refused_commit(answer)) is None:
                return None
            tp, code = refused
            return error_from(code, what=f"offsets of group '{self.group}', {tp}")

        ask_coordinator(
            self._cluster,
            GROUP,
            self.group,
            request.spec,
            request.message,
            error_of,
            deadline_ms=self._deadline_ms,
        )
