"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the members of a group and their assignments.

A JoinGroup is answered when the group's next generation begins, a SyncGroup when its leader has
assigned the partitions: both may take as long as the slowest member. Source: Kafka's classic group
protocol; KIP-62, KIP-345, KIP-394, KIP-559, KIP-814.

FindCoordinator: the coordinator of a group or a transactional id is the leader of its partition
of the topic that keeps the state.

The first request for a kind creates that kind's topic. Source: KIP-98, KIP-699.
"""

from dataclasses import dataclass

from storage_engine.broker.coordinators.state_topic import StateTopic
from storage_engine.broker.handlers.administration.metadata import ClusterForClients
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.groups.group_requests import (
    GroupRequests,
    are_too_long,
    fresh_member_id,
)
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.coordinator_log import Answer
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import (
    Join,
    Joined,
    Leave,
    Left,
    MemberHeartbeat,
    RequestingMember,
    Sync,
    Synced,
)
from storage_engine.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from storage_engine.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from storage_engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from storage_engine.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from storage_engine.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_JOIN_WITH_REQUIRED_ID = 4
FIRST_JOIN_WITH_NULL_PROTOCOL = 7
FIRST_JOIN_WITH_SKIPPED_ASSIGNMENT = 9
FIRST_LEAVE_OF_MANY = 3

PROTOCOLS_MAX = 100
"""The most protocols of a member: each join looks for the protocols that all members have."""

LEAVING_MAX = 1000
"""The most members of one LeaveGroup: they leave in one step of the coordinator."""


@dataclass(frozen=True, slots=True)
class GroupMemberHandlers:
    """Answers JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

    requests: GroupRequests

    def join_group(self, call: ApiCall[JoinGroupResponse], request: JoinGroupRequest) -> None:
        def respond(answer: Answer) -> None:
            # The members' data are only for a client that may still read.
            error = call.refusal() or answer.error
            if isinstance(answer, Joined) and error is answer.error:
                joined = answer
            else:
                joined = Joined(request=0, error=error, member_id=request.member_id)
            if joined.members:
                # As many as the group has.
                call.run(_respond_to_leader(call, joined))
            else:
                call.respond(_joined_response(call.version, joined, []))

        if len(request.protocols) > PROTOCOLS_MAX:
            respond(Answer(request=0, error=ErrorCode.INVALID_REQUEST))
            return
        protocols = tuple((each.name, each.metadata) for each in request.protocols)
        instance_id = request.group_instance_id
        names = [request.member_id, instance_id, request.protocol_type, *(n for n, _ in protocols)]
        if are_too_long([request.group_id]):
            respond(Answer(request=0, error=ErrorCode.INVALID_GROUP_ID))
            return
        if are_too_long(names) or are_too_long([call.client_id]):
            respond(Answer(request=0, error=ErrorCode.INVALID_REQUEST))
            return
        session_ms, rebalance_ms = request.session_timeout_ms, request.rebalance_timeout_ms
        self.requests.ask(
            request.group_id,
            call.while_allowed(
                lambda number, at: Join(
                    request=number,
                    group_id=request.group_id,
                    member_id=request.member_id,
                    fresh_member_id=fresh_member_id(instance_id or call.client_id),
                    instance_id=instance_id,
                    client_id=call.client_id,
                    client_host=f"/{call.connection.peer_host}",
                    session_timeout_ms=session_ms,
                    rebalance_timeout_ms=rebalance_ms if rebalance_ms >= 0 else session_ms,
                    protocol_type=request.protocol_type,
                    protocols=protocols,
                    asks_for_id=call.version >= FIRST_JOIN_WITH_REQUIRED_ID,
                    skips_assignment=call.version >= FIRST_JOIN_WITH_SKIPPED_ASSIGNMENT,
                    at=at,
                )
            ),
            respond,
        )

    def sync_group(self, call: ApiCall[SyncGroupResponse], request: SyncGroupRequest) -> None:
        def respond(answer: Answer) -> None:
            error = call.refusal() or answer.error
            if isinstance(answer, Synced) and error is answer.error:
                synced = answer
            else:
                synced = Synced(request=0, error=error)
            call.respond(
                SyncGroupResponse(
                    error_code=int(synced.error),
                    protocol_type=synced.protocol_type,
                    protocol_name=synced.protocol,
                    assignment=synced.assignment,
                )
            )

        self.requests.ask(
            request.group_id,
            call.while_allowed(
                lambda number, at: Sync(
                    request=number,
                    group_id=request.group_id,
                    caller=_caller(request),
                    protocol_type=request.protocol_type,
                    protocol=request.protocol_name,
                    assignments={each.member_id: each.assignment for each in request.assignments},
                    at=at,
                )
            ),
            respond,
        )

    def heartbeat(self, call: ApiCall[HeartbeatResponse], request: HeartbeatRequest) -> None:
        self.requests.ask(
            request.group_id,
            call.while_allowed(
                lambda number, at: MemberHeartbeat(
                    request=number, group_id=request.group_id, caller=_caller(request), at=at
                )
            ),
            lambda answer: call.respond(HeartbeatResponse(error_code=int(answer.error))),
        )

    def leave_group(self, call: ApiCall[LeaveGroupResponse], request: LeaveGroupRequest) -> None:
        if call.version >= FIRST_LEAVE_OF_MANY and len(request.members) > LEAVING_MAX:
            code = int(ErrorCode.INVALID_REQUEST)
            call.respond(LeaveGroupResponse(error_code=code, members=[]))
            return
        if call.version < FIRST_LEAVE_OF_MANY:
            callers: tuple[RequestingMember, ...] = (RequestingMember(member_id=request.member_id),)
        else:
            callers = tuple(
                RequestingMember(member_id=each.member_id, instance_id=each.group_instance_id)
                for each in request.members
            )

        def respond(answer: Answer) -> None:
            if not isinstance(answer, Left):
                call.respond(LeaveGroupResponse(error_code=int(answer.error), members=[]))
            elif call.version < FIRST_LEAVE_OF_MANY:
                (code,) = answer.codes
                call.respond(LeaveGroupResponse(error_code=int(code), members=[]))
            else:
                members = [
                    LeaveGroupResponse.MemberResponse(
                        member_id=caller.member_id,
                        group_instance_id=caller.instance_id,
                        error_code=int(code),
                    )
                    for caller, code in zip(callers, answer.codes, strict=True)
                ]
                call.respond(LeaveGroupResponse(error_code=0, members=members))

        self.requests.ask(
            request.group_id,
            call.while_allowed(
                lambda number, at: Leave(
                    request=number, group_id=request.group_id, members=callers, at=at
                )
            ),
            respond,
        )


def _respond_to_leader(call: ApiCall[JoinGroupResponse], joined: Joined) -> Steps:
    members = []
    for member_id, instance_id, metadata in joined.members:
        yield None
        members.append(
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
        )
    call.respond(_joined_response(call.version, joined, members))


def _joined_response(
    version: int, joined: Joined, members: list[JoinGroupResponse.JoinGroupResponseMember]
) -> JoinGroupResponse:
    protocol = joined.protocol
    if protocol is None and version < FIRST_JOIN_WITH_NULL_PROTOCOL:
        protocol = ""
    return JoinGroupResponse(
        error_code=int(joined.error),
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=members,
    )


def _caller(request: SyncGroupRequest | HeartbeatRequest) -> RequestingMember:
    return RequestingMember(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
    )


FIRST_VERSION_WITH_MANY_KEYS = 4
GROUP = 0
TRANSACTION = 1

_NONE_YET = "the coordinator is not available: ask again"
_UNKNOWN_TYPE = "coordinators are found for groups (0) and transactions (1) only"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorHandler:
    """Answers FindCoordinator."""

    group_topic: StateTopic
    transaction_topic: StateTopic
    cluster: ClusterForClients

    def handle(
        self, call: ApiCall[FindCoordinatorResponse], request: FindCoordinatorRequest
    ) -> Steps:
        if call.version >= FIRST_VERSION_WITH_MANY_KEYS:
            coordinators = []
            for key in request.coordinator_keys:
                coordinators.append(self._answer(call, request.key_type, key))
                yield None
            call.respond(FindCoordinatorResponse(coordinators=coordinators))
        else:
            answer = self._answer(call, request.key_type, request.key)
            call.respond(
                FindCoordinatorResponse(
                    error_code=answer.error_code,
                    error_message=answer.error_message,
                    node_id=answer.node_id,
                    host=answer.host,
                    port=answer.port,
                )
            )

    def _answer(
        self, call: ApiCall[FindCoordinatorResponse], key_type: int, key: str
    ) -> FindCoordinatorResponse.Coordinator:
        found: BrokerInfo | None = None
        code, text = ErrorCode.COORDINATOR_NOT_AVAILABLE, _NONE_YET
        topic = {GROUP: self.group_topic, TRANSACTION: self.transaction_topic}.get(key_type)
        if topic is not None:
            topic.learn(create=True)
            found = self._at_listener(call, topic.coordinator_of(key))
        else:
            code, text = ErrorCode.INVALID_REQUEST, _UNKNOWN_TYPE
        if found is None:
            return FindCoordinatorResponse.Coordinator(
                key=key, error_code=int(code), error_message=text, node_id=-1, port=-1
            )
        return FindCoordinatorResponse.Coordinator(
            key=key,
            error_message=None,
            node_id=found.broker_id,
            host=found.host,
            port=found.port,
        )

    def _at_listener(
        self, call: ApiCall[FindCoordinatorResponse], coordinator: BrokerInfo | None
    ) -> BrokerInfo | None:
        """The coordinator at the client's listener; None if it is dead, in doubt or not there."""
        if coordinator is None or coordinator.broker_id in self.cluster.doubts.current():
            return None
        for broker in self.cluster.brokers_at(call.connection.listener_name):
            if broker.broker_id == coordinator.broker_id:
                return broker
        return None
