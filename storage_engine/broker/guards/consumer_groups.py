"""The rights of members of consumer groups (KIP-848), and to describe such groups.

A member may subscribe to topics that it may describe. A group is shown to those alone who may
describe all of its topics: with some left out it would look as if nobody read them.
"""

from collections.abc import Iterator
from itertools import chain

from storage_engine.broker.guards.client import REFUSALS, Asked, RequestClient, passed
from storage_engine.broker.guards.groups import itself, of_group
from storage_engine.broker.guards.shares import Building, ByItem, briefly, first_asks, row_of
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_rules import AclOperation, ResourceType
from storage_engine.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
    DescribedMember,
)
from storage_engine.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_TOPIC_REFUSAL = REFUSALS[_TOPIC]

_Heartbeat = Asked[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse]


def _heartbeat_refused(code: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=ErrorCode.of(code).meaning)


def _with_topics(asked: _Heartbeat) -> Steps | None:
    if not asked.request.subscribed_topic_names:
        return asked.handler(asked.call, asked.request)
    return _with_named_topics(asked)


def _with_named_topics(asked: _Heartbeat) -> Steps:
    client, call, request, handler = asked
    client.grant(each=AclOperation.DESCRIBE)
    names = request.subscribed_topic_names or ()
    if (yield from client.refused(AclOperation.DESCRIBE, _TOPIC, names)):
        call.respond(_heartbeat_refused(int(_TOPIC_REFUSAL)))
    else:
        yield from passed(handler, call, request)


consumer_group_heartbeat = first_asks(
    of_group(AclOperation.READ), briefly(_heartbeat_refused), _with_topics
)

_DESCRIBED: ByItem[str, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse] = ByItem(
    operation=AclOperation.DESCRIBE,
    kind=_GROUP,
    items="group_ids",
    name=itself,
    rows="groups",
    row=row_of(
        lambda group, code: DescribedConsumerGroup(
            error_code=code, error_message=ErrorCode.of(code).meaning, group_id=group
        )
    ),
    answer_class=ConsumerGroupDescribeResponse,
)


def consumer_group_describe(
    asked: Asked[ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse],
) -> Steps:
    client, _call, request, handler = asked
    wants_operations = request.include_authorized_operations

    def described(
        of: ApiCall[ConsumerGroupDescribeResponse], wanted: ConsumerGroupDescribeRequest
    ) -> Steps:
        refusals = of.amend

        def amend(
            answer: ConsumerGroupDescribeResponse,
        ) -> Building[ConsumerGroupDescribeResponse]:
            groups = []
            for group in answer.groups:
                if not group.error_code:
                    group = yield from _shown(client, group)
                if wants_operations and not group.error_code:
                    group.authorized_operations = client.operations(_GROUP, group.group_id)
                groups.append(group)
            answer.groups = groups
            if refusals is not None:
                answer = yield from refusals(answer)
            return answer

        of.amend = amend
        yield from passed(handler, of, wanted)

    yield from _DESCRIBED(asked._replace(handler=described))


def _shown(
    client: RequestClient, group: DescribedConsumerGroup
) -> Building[DescribedConsumerGroup]:
    """Return the group, or an error for it where the client may not describe one of its topics."""
    seen: set[str] = set()
    for member in group.members:
        for topic in _topics_of(member):
            yield None
            if topic in seen:
                continue
            seen.add(topic)
            if not client.may_unlogged(AclOperation.DESCRIBE, _TOPIC, topic):
                return DescribedConsumerGroup(
                    error_code=int(_TOPIC_REFUSAL),
                    error_message="the group has topics that the client may not describe",
                    group_id=group.group_id,
                )
    return group


def _topics_of(member: DescribedMember) -> Iterator[str]:
    yield from member.subscribed_topic_names
    for each in chain(
        member.assignment.topic_partitions, member.target_assignment.topic_partitions
    ):
        yield each.topic_name
