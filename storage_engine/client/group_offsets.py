"""Stores offsets under the name of a group, for a program that assigns its partitions itself.

Rule: the group has no members (generation -1, no member id), as Kafka's "simple consumers" have
none; a lost or retriable answer is followed by the same request, at whoever coordinates the group
by then, until the deadline. Source: the OffsetCommit API. Not for several threads at once.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from storage_engine.client.cluster import Cluster
from storage_engine.client.coordinator_lookup import GROUP, find_coordinator
from storage_engine.client.retry import Retry
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.registry import APIS, spec_for

_OFFSET_COMMIT = 8


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
        request = _request(self.group, offsets)
        deadline = Deadline.after(self._deadline_ms)
        retry = Retry(f"OffsetCommit of group '{self.group}'", deadline)
        while True:
            failure: HeadraceError
            try:
                answer = self._cluster.request(
                    self._find(deadline),
                    spec_for(_OFFSET_COMMIT),
                    request,
                    timeout_ms=max(1, min(deadline.left_ms, self._cluster.request_timeout_ms)),
                )
            except (KafkaError, DeadlineExceededError) as error:
                failure = error
            else:
                refused = _refused(answer)
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


def _request(group: str, offsets: Mapping[TopicPartition, int]) -> Any:
    request_class: Any = _module(_OFFSET_COMMIT).OffsetCommitRequest
    topic_class = request_class.OffsetCommitRequestTopic
    by_topic: dict[str, list[Any]] = {}
    for tp, offset in offsets.items():
        row = topic_class.OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        by_topic.setdefault(tp.topic, []).append(row)
    return request_class(
        group_id=group,
        topics=[topic_class(name=name, partitions=rows) for name, rows in by_topic.items()],
    )


def _refused(answer: Any) -> tuple[TopicPartition, ErrorCode] | None:
    """One that no retry helps rather than one that is only to be asked for again."""
    refused = [
        (TopicPartition(topic.name, row.partition_index), ErrorCode.of(row.error_code))
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code
    ]
    refused.sort(key=lambda one: one[1].retriable)
    return refused[0] if refused else None


def _module(key: int) -> Any:
    """The messages of an API, imported on first use."""
    return importlib.import_module(f"storage_engine.protocol.apis.{APIS[key].module}")
