"""Checks requests for groups and passes them to their coordinators.

A request that does not fit into the coordinator's records is refused here: a failed append would
interrupt all groups of the partition.

DescribeGroups, ListGroups and DeleteGroups: the administration of groups.

A coordinator that is still loading answers nothing, and while this broker leads a partition without
a coordinator, a list of groups comes with an error. A group that is no classic one is Dead in
DescribeGroups, as in Kafka. Source: KIP-229, KIP-518, KIP-848 (types of groups).
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import uuid4

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.coordinators.coordinators import GroupCoordinators
from storage_engine.broker.coordinators.state_machine import now
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.core.coordinator_log import Answer, Moment
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.classic.group import ClassicGroup, GroupState
from storage_engine.core.groups.coordinator import GroupCoordinator, refusal
from storage_engine.core.groups.events import DeleteGroup, Event
from storage_engine.core.groups.group import CONSUMER, Group
from storage_engine.core.groups.records import NO_EXPIRY, OffsetRecord
from storage_engine.core.ids import GROUP_OFFSETS_TOPIC, BrokerId, TopicPartition
from storage_engine.core.ports import Clock, Scheduler
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.protocol.apis.spec import Resp
from storage_engine.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from storage_engine.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from storage_engine.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from storage_engine.protocol.messages.offset_commit import OffsetCommitRequest
from storage_engine.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

NAME_MAX_BYTES = 16_384
"""The longest group, member or instance id, or protocol name: a string in a record has 32767 bytes
at most, and a member id contains others."""

_NAME_MAX_CHARACTERS = NAME_MAX_BYTES // 4
"""No character takes more than four bytes."""

COMMIT_MAX_BYTES = 8 << 20
"""The approximate limit of a commit: it is one batch, of at most 16 MiB."""

COMMITTED_OFFSET_BYTES = 400
"""The size of a committed offset without its metadata, with the longest topic name."""

LATEST_MS = (1 << 63) - 1
"""The latest time in a record, an int64: a client may ask for a longer retention."""

TOO_MANY_TO_ASK = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""The answer to a request with too many topics to check at once, when rules have changed while it
waited: every client sends it again."""

Row = TypeVar("Row")

EventOf = Callable[[int, Moment], Event | ErrorCode]
"""Makes an event from the number of the request and the time of the step, or returns an ErrorCode
when the request is no longer possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequests:
    """The coordinators of groups on this broker, for handlers."""

    coordinators: GroupCoordinators
    config: DynamicConfig
    scheduler: Scheduler
    clock: Clock

    def ask(self, group_id: str, event_of: EventOf, on_answer: Callable[[Answer], None]) -> None:
        """Submit an event to the group's coordinator, if it is on this broker."""
        self.coordinators.request(
            group_id, lambda number: event_of(number, now(self.clock)), on_answer
        )

    def ask_in_time(
        self, group_id: str, event_of: EventOf, on_answer: Callable[[Answer], None]
    ) -> None:
        """Like `ask`, for offsets and heartbeats. After `offsets.commit.timeout.ms` without an
        answer, answer with COORDINATOR_NOT_AVAILABLE; the outcome is open."""
        deadline: RequestDeadline | None = None
        is_answered = False

        def on_time(answer: Answer) -> None:
            nonlocal is_answered
            is_answered = True
            if deadline is None or deadline.finish():
                on_answer(answer)

        self.ask(group_id, event_of, on_time)
        if not is_answered:
            # Most are answered at once.
            deadline = RequestDeadline(
                self.scheduler,
                self.config.integer("offsets.commit.timeout.ms"),
                lambda: on_answer(refusal(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)),
            )

    def offsets_to_commit(
        self, metadata: MetadataCache, *, retention_ms: int = -1
    ) -> "OffsetsToCommit":
        """Make an empty commit with the present time."""
        return OffsetsToCommit(
            metadata,
            metadata_max_bytes=self.config.integer("offset.metadata.max.bytes"),
            wall_ms=self.clock.wall_ms(),
            retention_ms=retention_ms,
        )


def are_too_long(names: Iterable[str | None]) -> bool:
    for name in names:
        # Only a name with so many characters can have more bytes.
        if name and len(name) > _NAME_MAX_CHARACTERS and len(name.encode()) > NAME_MAX_BYTES:
            return True
    return False


def fresh_member_id(prefix: str) -> str:
    """A new member id, in Kafka's form."""
    return f"{prefix}-{uuid4()}"


class OffsetsToCommit:
    """The partitions of a commit: the offsets that can be stored, and the errors of the others."""

    def __init__(
        self,
        metadata: MetadataCache,
        *,
        metadata_max_bytes: int,
        wall_ms: int,
        retention_ms: int = -1,
    ) -> None:
        """`metadata_max_bytes`: the limit of one offset's metadata; `retention_ms`: how long the
        offsets are kept, -1: as the broker's settings say."""
        self._metadata = metadata
        self._metadata_max_bytes = metadata_max_bytes
        self._wall_ms = wall_ms
        self._retention_ms = retention_ms
        self.offsets: dict[TopicPartition, OffsetRecord] = {}
        self.codes: dict[TopicPartition, ErrorCode] = {}
        """The error codes of all partitions of the request, in their order; NONE for those in
        `offsets`."""

    def take(
        self,
        topics: Sequence[OffsetCommitRequest.OffsetCommitRequestTopic]
        | Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic],
    ) -> Steps:
        """Add the offsets of these topics, as in OffsetCommit and TxnOffsetCommit."""
        wall_ms, retention_ms = self._wall_ms, self._retention_ms
        expire_ms = NO_EXPIRY if retention_ms < 0 else min(wall_ms + retention_ms, LATEST_MS)
        size = 0
        for topic in topics:
            known = self._metadata.partitions(topic.name) or {}
            for item in topic.partitions:
                yield None
                tp = TopicPartition(topic.name, item.partition_index)
                metadata = item.committed_metadata or ""
                bytes_of_it = len(metadata.encode())
                size += bytes_of_it + COMMITTED_OFFSET_BYTES
                if tp.partition not in known:
                    self.codes[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif bytes_of_it > self._metadata_max_bytes:
                    self.codes[tp] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                elif size > COMMIT_MAX_BYTES:
                    self.codes[tp] = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
                else:
                    self.codes[tp] = ErrorCode.NONE
                    self.offsets[tp] = OffsetRecord(
                        offset=item.committed_offset,
                        leader_epoch=item.committed_leader_epoch,
                        metadata=metadata,
                        commit_ms=wall_ms,
                        expire_ms=expire_ms,
                    )

    def still_there(self) -> dict[TopicPartition, OffsetRecord]:
        """The offsets that can still be stored: a topic may have been deleted while the commit
        waited, and offsets committed for it afterwards would never be deleted."""
        known = self._metadata.partitions
        for tp in [tp for tp in self.offsets if tp.partition not in (known(tp.topic) or {})]:
            del self.offsets[tp]
            self.codes[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self.offsets

    def still_possible(self, call: ApiCall[Resp]) -> dict[TopicPartition, OffsetRecord] | ErrorCode:
        """The offsets that can still be stored and whose topics the client may still read; an error
        where there are none."""
        offsets = self.still_there()
        if not offsets:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refused = call.refused(ResourceType.TOPIC, {tp.topic for tp in offsets})
        if refused is None:
            return TOO_MANY_TO_ASK
        for tp in [tp for tp in offsets if tp.topic in refused]:
            del offsets[tp]
            self.codes[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return offsets or ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def settle(self, code: ErrorCode) -> None:
        """Set the code of all partitions in `offsets`."""
        for tp in self.offsets:
            self.codes[tp] = code

    def refuse(self, code: ErrorCode) -> None:
        """Set the code of all partitions."""
        self.codes = dict.fromkeys(self.codes, code)

    def rows(self, row_class: Callable[..., Row]) -> Generator[None, None, dict[str, list[Row]]]:
        """The codes as rows of a response, by topic."""
        by_topic: dict[str, list[Row]] = {}
        for tp, code in self.codes.items():
            yield None
            row = row_class(partition_index=tp.partition, error_code=int(code))
            by_topic.setdefault(tp.topic, []).append(row)
        return by_topic


DEAD = "Dead"


def _protocol_type(group: Group) -> str:
    return group.protocol_type or "" if isinstance(group, ClassicGroup) else CONSUMER


_Described = DescribeGroupsResponse.DescribedGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAdminHandlers:
    """Answers DescribeGroups, ListGroups and DeleteGroups."""

    requests: GroupRequests
    metadata: MetadataCache
    broker_id: BrokerId

    def describe(
        self, call: ApiCall[DescribeGroupsResponse], request: DescribeGroupsRequest
    ) -> Steps:
        groups = []
        # Each once: a group may have many members.
        for group_id in dict.fromkeys(request.groups):
            groups.append((yield from self._described(group_id)))
            yield None
        call.respond(DescribeGroupsResponse(groups=groups))

    def _described(self, group_id: str) -> Generator[None, None, _Described]:
        found = self.requests.coordinators.coordinator_of(group_id)
        group: ClassicGroup | None = None
        code = ErrorCode.NONE
        if isinstance(found, ErrorCode):
            code = found
        else:
            assert isinstance(found, GroupCoordinator)
            found_group = found.groups.get(group_id)
            group = found_group if isinstance(found_group, ClassicGroup) else None
        if group is None:
            return _Described(
                error_code=int(code),
                group_id=group_id,
                group_state="" if code is not ErrorCode.NONE else DEAD,
                protocol_type="",
                protocol_data="",
                members=[],
            )
        is_stable = group.state is GroupState.STABLE
        protocol = group.protocol
        described = _Described(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(protocol or "") if is_stable else "",
        )
        members = []
        # A copy: members may come and go while others have their turn.
        for member in list(group.members.values()):
            yield None
            members.append(
                _Described.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(protocol) if is_stable else b"",
                    member_assignment=member.assignment if is_stable else b"",
                )
            )
        described.members = members
        return described

    def list_all(self, call: ApiCall[ListGroupsResponse], request: ListGroupsRequest) -> Steps:
        states = {state.lower() for state in request.states_filter or ()}
        types = {each.lower() for each in request.types_filter or ()}
        known = self.metadata.partitions(GROUP_OFFSETS_TOPIC) or {}
        led = [
            TopicPartition(GROUP_OFFSETS_TOPIC, number)
            for number, state in known.items()
            if state.leader == self.broker_id
        ]
        coordinators = list(self.requests.coordinators)
        whole = None not in coordinators and self.requests.coordinators.are_loaded(led)
        code = ErrorCode.NONE if whole else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        # A copy: groups may come and go while others have their turn.
        found = [
            group
            for coordinator in coordinators
            if isinstance(coordinator, GroupCoordinator)
            for group in coordinator.groups.values()
        ]
        groups = []
        for group in found:
            yield None
            state, kind = group.state_name, group.type.value
            if (not states or state.lower() in states) and (not types or kind in types):
                listed = ListGroupsResponse.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=_protocol_type(group),
                    group_state=state,
                    group_type=kind,
                )
                groups.append(listed)
        call.respond(ListGroupsResponse(error_code=int(code), groups=groups))

    def delete(self, call: ApiCall[DeleteGroupsResponse], request: DeleteGroupsRequest) -> Steps:
        names = list(dict.fromkeys(request.groups_names))
        codes: dict[str, ErrorCode] = {}

        def note(name: str, answer: Answer) -> None:
            codes[name] = answer.error
            if len(codes) == len(names):
                call.run(respond())

        def respond() -> Steps:
            row = DeleteGroupsResponse.DeletableGroupResult
            results = []
            for name in names:
                results.append(row(group_id=name, error_code=int(codes[name])))
                yield None
            call.respond(DeleteGroupsResponse(results=results))

        if not names:
            yield from respond()
        for name in names:
            yield None

            def event_of(number: int, _at: Moment, name: str = name) -> DeleteGroup:
                return DeleteGroup(request=number, group_id=name)

            allowed = call.while_allowed(event_of, ResourceType.GROUP, name)
            self.requests.ask_in_time(name, allowed, partial(note, name))
