"""Consumer groups, for those who look after them: list, describe, offsets, delete.

Rule: every broker tells of the groups that it coordinates; a lost or retriable answer is followed
by the same request, at whoever coordinates the group by then, until the deadline. Source: KIP-222,
KIP-229.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from storage_engine.client.admin import api_of
from storage_engine.client.cluster import Cluster
from storage_engine.client.coordinator_lookup import GROUP, find_coordinator
from storage_engine.client.retry import Retry
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.groups.subscription import CONSUMER
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.consumer_protocol import decode_assignment

_OFFSET_COMMIT, _OFFSET_FETCH = 8, 9
_DESCRIBE_GROUPS, _LIST_GROUPS, _DELETE_GROUPS = 15, 16, 42

_FETCH_VERSION = 7
"""The newest for one group at a time."""

DEAD = "Dead"
"""The state of a group that does not exist."""

CodeOf = Callable[[Any], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    group: str
    state: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    """Of a consumer, while the group is stable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[GroupMember, ...]


def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """All groups, by name. KafkaError when a broker does not tell its own in time."""
    spec, request = api_of(_LIST_GROUPS)
    cluster.refresh([])
    groups = []
    for broker_id in sorted(cluster.metadata([]).brokers):
        answer = _until_told(
            cluster,
            f"groups of broker {broker_id}",
            lambda broker_id=broker_id: cluster.request(  # type: ignore[misc]
                broker_id, spec, request(states_filter=[], types_filter=[])
            ),
        )
        groups += [
            ListedGroup(
                group=each.group_id,
                state=each.group_state,
                protocol_type=each.protocol_type,
                coordinator=broker_id,
            )
            for each in answer.groups
        ]
    return sorted(groups, key=lambda each: each.group)


def _until_told(cluster: Cluster, what: str, ask: Callable[[], Any]) -> Any:
    retry = Retry(what, Deadline.after(cluster.deadline_ms))
    while True:
        failure: HeadraceError
        try:
            answer = ask()
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                return answer
            failure = KafkaError(f"{what}: {code.meaning}", code)
        except (KafkaError, DeadlineExceededError) as error:
            failure = error
        retry.pause(failure)


def describe_group(cluster: Cluster, group: str) -> GroupDescription:
    """State DEAD where there is none."""
    spec, request = api_of(_DESCRIBE_GROUPS)
    coordinator, answer = _ask_coordinator(
        cluster,
        group,
        spec,
        request(groups=[group], include_authorized_operations=False),
        lambda answer: answer.groups[0].error_code,
    )
    (told,) = answer.groups
    return GroupDescription(
        group=group,
        state=told.group_state,
        protocol_type=told.protocol_type,
        protocol=told.protocol_data,
        coordinator=coordinator,
        members=tuple(
            GroupMember(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                client_id=each.client_id,
                host=each.client_host,
                partitions=(
                    decode_assignment(each.member_assignment)
                    if told.protocol_type == CONSUMER
                    else ()
                ),
            )
            for each in told.members
        ),
    )


def group_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """All that the group has committed: by partition the next offset to read."""
    spec, request = api_of(_OFFSET_FETCH)
    _, answer = _ask_coordinator(
        cluster,
        group,
        spec,
        request(group_id=group, topics=None, require_stable=True),
        _worst_fetched,
        version=_FETCH_VERSION,
    )
    return {
        TopicPartition(topic.name, row.partition_index): row.committed_offset
        for topic in answer.topics
        for row in topic.partitions
        if row.committed_offset >= 0
    }


def _worst_fetched(answer: Any) -> int:
    rows = [row.error_code for topic in answer.topics for row in topic.partitions]
    return int(answer.error_code or next(filter(None, rows), 0))


def set_group_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """For a group without members: KafkaError UNKNOWN_MEMBER_ID when it has some."""
    spec, request = api_of(_OFFSET_COMMIT)
    topic_class = request.OffsetCommitRequestTopic
    topics: dict[str, list[Any]] = {}
    for tp, offset in offsets.items():
        row = topic_class.OffsetCommitRequestPartition(
            partition_index=tp.partition, committed_offset=offset, committed_metadata=""
        )
        topics.setdefault(tp.topic, []).append(row)
    _ask_coordinator(
        cluster,
        group,
        spec,
        request(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[topic_class(name=name, partitions=rows) for name, rows in topics.items()],
        ),
        lambda answer: next(
            (row.error_code for t in answer.topics for row in t.partitions if row.error_code), 0
        ),
    )


def delete_group(cluster: Cluster, group: str) -> None:
    """With its offsets. KafkaError NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND."""
    spec, request = api_of(_DELETE_GROUPS)
    _ask_coordinator(
        cluster,
        group,
        spec,
        request(groups_names=[group]),
        lambda answer: answer.results[0].error_code,
    )


def _ask_coordinator(
    cluster: Cluster,
    group: str,
    spec: Any,
    message: Any,
    code_of: CodeOf,
    *,
    version: int | None = None,
) -> tuple[int, Any]:
    """The coordinator and its answer; KafkaError when it is a final no."""
    deadline = Deadline.after(cluster.deadline_ms)
    retry = Retry(f"{spec.name} of group '{group}'", deadline)
    while True:
        failure: HeadraceError
        try:
            what = f"group '{group}'"
            coordinator = find_coordinator(cluster, GROUP, group, what, deadline)
            answer = cluster.request(coordinator, spec, message, version=version)
            code = ErrorCode.of(code_of(answer))
            if code is ErrorCode.NONE:
                return coordinator, answer
            failure = KafkaError(f"group '{group}': {code.meaning}", code)
        except (KafkaError, DeadlineExceededError) as error:
            failure = error
        retry.pause(failure)
