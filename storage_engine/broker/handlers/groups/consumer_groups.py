"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the groups whose partitions the coordinator
assigns.

A heartbeat that says nothing new is answered in its turn. What a member subscribes to and owns may
be long; it is taken up in pieces, after its bounds have been checked. Below group.version 1 both
requests are refused. Source: KIP-848, KIP-1082, KIP-1099.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from uuid import UUID, uuid4

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.groups.group_requests import (
    TOO_MANY_TO_ASK,
    GroupRequests,
    are_too_long,
)
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.settings.group_config import NOT_ENABLED
from storage_engine.core.coordinator_log import Answer, Moment
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.groups.consumer.events import (
    ConsumerHeartbeat,
    HeartbeatAnswer,
    RequestingClient,
)
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.consumer.heartbeat_checks import TOPICS_MAX
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.ids import MAX_TOPIC_LENGTH
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.protocol.apis.consumer_group_describe import (
    CLASSIC_MEMBER,
    CONSUMER_MEMBER,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedMember,
    DescribedTopicPartitions,
)
from storage_engine.protocol.apis.consumer_group_heartbeat import (
    FIRST_VERSION_WITH_OWN_ID,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedPartitions,
)
from storage_engine.protocol.apis.consumer_group_heartbeat import Assignment as SentAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHandlers:
    """Answers both requests."""

    requests: GroupRequests
    metadata: MetadataCache
    pattern_problem: Callable[[str], str | None]
    """Returns why groups can't subscribe to a pattern."""
    is_enabled: Callable[[], bool]
    """Returns whether the cluster has consumer groups by now."""

    def heartbeat(
        self,
        call: ApiCall[ConsumerGroupHeartbeatResponse],
        request: ConsumerGroupHeartbeatRequest,
    ) -> Steps | None:
        refusal = self._refusal(call, request)
        if refusal is not None:
            call.respond(_refused(*refusal))
        elif request.subscribed_topic_names or request.topic_partitions:
            return self._long_heartbeat(call, request)
        else:
            topics = None if request.subscribed_topic_names is None else frozenset[str]()
            self._ask(call, request, topics, None if request.topic_partitions is None else {})
        return None

    def _refusal(
        self,
        call: ApiCall[ConsumerGroupHeartbeatResponse],
        request: ConsumerGroupHeartbeatRequest,
    ) -> tuple[ErrorCode, str] | None:
        """Why the request is refused before its coordinator sees it."""
        if not self.is_enabled():
            return ErrorCode.UNSUPPORTED_VERSION, NOT_ENABLED
        if not request.group_id.strip():
            return ErrorCode.INVALID_REQUEST, "the id of a group must not be empty"
        member_id, instance_id = request.member_id, request.instance_id
        given = member_id, instance_id, request.rack_id, request.server_assignor, call.client_id
        if are_too_long((request.group_id, *given)):
            if are_too_long((request.group_id,)):
                return ErrorCode.INVALID_GROUP_ID, "the id of the group is too long"
            return ErrorCode.INVALID_REQUEST, "an id or name of the member is too long"
        names = request.subscribed_topic_names or ()
        if len(names) > TOPICS_MAX:
            text = f"a member subscribes to at most {TOPICS_MAX} topics, or to a pattern"
            return ErrorCode.INVALID_REQUEST, text
        pattern = request.subscribed_topic_regex
        problem = self.pattern_problem(pattern) if pattern else None
        return None if problem is None else (ErrorCode.INVALID_REGULAR_EXPRESSION, problem)

    def _long_heartbeat(
        self,
        call: ApiCall[ConsumerGroupHeartbeatResponse],
        request: ConsumerGroupHeartbeatRequest,
    ) -> Steps:
        for name in request.subscribed_topic_names or ():
            if len(name) > MAX_TOPIC_LENGTH:
                text = f"no topic has a name of more than {MAX_TOPIC_LENGTH} characters"
                call.respond(_refused(ErrorCode.INVALID_REQUEST, text))
                return
            yield None
        owned: dict[UUID, frozenset[int]] | None = None
        if request.topic_partitions is not None:
            owned = {}
            for each in request.topic_partitions:
                if each.partitions:
                    known = owned.get(each.topic_id, frozenset())
                    owned[each.topic_id] = known.union(each.partitions)
                yield None
        names = request.subscribed_topic_names
        self._ask(call, request, None if names is None else frozenset(names), owned)

    def _ask(
        self,
        call: ApiCall[ConsumerGroupHeartbeatResponse],
        request: ConsumerGroupHeartbeatRequest,
        topics: frozenset[str] | None,
        owned: Assignment | None,
    ) -> None:
        def event_of(number: int, at: Moment) -> ConsumerHeartbeat | ErrorCode:
            lost = call.refused(ResourceType.TOPIC, topics) if topics else ()
            if lost is None or lost:
                return TOO_MANY_TO_ASK if lost is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return ConsumerHeartbeat(
                request=number,
                group_id=request.group_id,
                member_id=request.member_id,
                fresh_member_id="" if call.version >= FIRST_VERSION_WITH_OWN_ID else str(uuid4()),
                member_epoch=request.member_epoch,
                instance_id=request.instance_id,
                rack_id=request.rack_id,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                topics=topics,
                pattern=request.subscribed_topic_regex,
                assignor=request.server_assignor,
                owned=owned,
                client=RequestingClient(
                    client_id=call.client_id,
                    host=f"/{call.connection.peer_host}",
                    principal=call.connection.principal,
                ),
                at=at,
            )

        def respond(answer: Answer) -> None:
            # The assignment is only for a client that may still read.
            lost = call.refusal()
            if lost is not ErrorCode.NONE:
                call.respond(_refused(lost, lost.meaning))
            elif not isinstance(answer, HeartbeatAnswer):
                call.respond(_refused(answer.error, answer.error.meaning))
            elif answer.assignment is None:
                call.respond(_beaten(answer, None))
            else:
                call.run(_respond_with(call, answer, answer.assignment))

        self.requests.ask_in_time(request.group_id, call.while_allowed(event_of), respond)

    def describe(
        self,
        call: ApiCall[ConsumerGroupDescribeResponse],
        request: ConsumerGroupDescribeRequest,
    ) -> Steps:
        groups = []
        # Each once: a group may have many members.
        for group_id in dict.fromkeys(request.group_ids):
            groups.append((yield from self._described(group_id)))
            yield None
        call.respond(ConsumerGroupDescribeResponse(groups=groups))

    def _described(self, group_id: str) -> Generator[None, None, DescribedConsumerGroup]:
        if not self.is_enabled():
            return _undescribed(group_id, ErrorCode.UNSUPPORTED_VERSION, NOT_ENABLED)
        if not group_id:
            text = "the id of a group must not be empty"
            return _undescribed(group_id, ErrorCode.INVALID_GROUP_ID, text)
        found = self.requests.coordinators.coordinator_of(group_id)
        if isinstance(found, ErrorCode):
            return _undescribed(group_id, found, found.meaning)
        assert isinstance(found, GroupCoordinator)
        group = found.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            text = f"there is no consumer group {group_id}"
            return _undescribed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, text)
        described = DescribedConsumerGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=group.preferred_assignor(
                self.requests.config.items("group.consumer.assignors")
            ),
        )
        members = []
        # A copy: members may come and go while others have their turn.
        for member_id in list(group.members):
            yield None
            if member_id in group.members:
                members.append((yield from self._member(group, member_id)))
        described.members = members
        return described

    def _member(
        self, group: ConsumerGroup, member_id: str
    ) -> Generator[None, None, DescribedMember]:
        member, current = group.members[member_id], group.current(member_id)
        target = group.target(member_id)
        assigned = yield from self._shown(current.assigned)
        return DescribedMember(
            member_id=member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=current.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            subscribed_topic_regex=member.pattern,
            assignment=assigned,
            target_assignment=(yield from self._shown(target)),
            member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        )

    def _shown(self, assignment: Assignment) -> Generator[None, None, DescribedAssignment]:
        """The partitions of topics that still exist."""
        rows = []
        for topic_id, partitions in list(assignment.items()):
            yield None
            name = self.metadata.topic_name(topic_id)
            if name is not None:
                rows.append(
                    DescribedTopicPartitions(
                        topic_id=topic_id, topic_name=name, partitions=sorted(partitions)
                    )
                )
        return DescribedAssignment(topic_partitions=rows)


def _respond_with(
    call: ApiCall[ConsumerGroupHeartbeatResponse], answer: HeartbeatAnswer, assignment: Assignment
) -> Steps:
    rows = []
    for topic_id, partitions in assignment.items():
        rows.append(OwnedPartitions(topic_id=topic_id, partitions=sorted(partitions)))
        yield None
    call.respond(_beaten(answer, SentAssignment(topic_partitions=rows)))


def _beaten(
    answer: HeartbeatAnswer, assignment: SentAssignment | None
) -> ConsumerGroupHeartbeatResponse:
    if answer.error is not ErrorCode.NONE:
        return _refused(answer.error, answer.message or answer.error.meaning)
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.interval_ms,
        assignment=assignment,
    )


def _refused(code: ErrorCode, message: str) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=int(code), error_message=message)


def _undescribed(group_id: str, code: ErrorCode, message: str) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(group_id=group_id, error_code=int(code), error_message=message)
