"""Requests of group members that are too large for a coordinator, and where coordinators are."""

import pytest

from storage_engine.broker.handlers.groups.group_members import LEAVING_MAX, PROTOCOLS_MAX
from storage_engine.broker.handlers.groups.group_requests import NAME_MAX_BYTES
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.messages import find_coordinator, join_group, leave_group
from storage_engine.tests.broker.support import cluster_fixture

LONG = "ä" * (NAME_MAX_BYTES // 2) + "x"
GROUP = 0
ALLOWED = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
"""What a request gets that is passed to a coordinator of a cluster without any."""

cluster = cluster_fixture(brokers=1, offsets_topic_replication_factor="1")


def joined(cluster, *, protocols: int = 1, protocol: str = "range", **fields: str) -> ErrorCode:
    made = join_group.JoinGroupRequest
    named = [
        made.JoinGroupRequestProtocol(name=f"{protocol}{number or ''}", metadata=b"")
        for number in range(protocols)
    ]
    given = {"group_id": "g", "member_id": "", "protocol_type": "consumer", **fields}
    request = made(session_timeout_ms=10_000, rebalance_timeout_ms=0, protocols=named, **given)
    return ErrorCode.of(cluster.answer(cluster.ask(1, join_group.API, 9, request)).error_code)


def left(cluster, version: int, members: int) -> ErrorCode:
    made = leave_group.LeaveGroupRequest
    leaving = [made.MemberIdentity(member_id=str(number)) for number in range(members)]
    request = made(group_id="g", member_id="0", members=leaving)
    return ErrorCode.of(
        cluster.answer(cluster.ask(1, leave_group.API, version, request)).error_code
    )


@pytest.mark.parametrize(
    ("too_long", "code"),
    [
        ({"group_id": LONG}, ErrorCode.INVALID_GROUP_ID),
        ({"member_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"group_instance_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"protocol_type": LONG}, ErrorCode.INVALID_REQUEST),
        ({"protocol": LONG}, ErrorCode.INVALID_REQUEST),
        ({"protocols": PROTOCOLS_MAX + 1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_member_that_no_record_can_hold_is_refused(cluster, too_long, code):
    assert joined(cluster, **too_long) is code


def test_a_member_at_the_limits_is_passed_to_its_coordinator(cluster):
    longest = LONG[:-1]
    assert joined(cluster, group_id=longest, member_id=longest) in ALLOWED
    assert joined(cluster, protocols=PROTOCOLS_MAX) in ALLOWED


def test_no_more_members_leave_at_once_than_the_loop_has_time_for(cluster):
    assert left(cluster, 3, LEAVING_MAX) in ALLOWED
    assert left(cluster, 3, LEAVING_MAX + 1) is ErrorCode.INVALID_REQUEST


def found(cluster, version: int, kind: int, *keys: str):
    made = find_coordinator.FindCoordinatorRequest
    request = made(key=keys[0], key_type=kind, coordinator_keys=list(keys))
    return cluster.answer(cluster.ask(1, find_coordinator.API, version, request))


def test_each_of_several_keys_has_its_coordinator(cluster):
    found(cluster, 4, GROUP, "g")
    cluster.loop.run_for(5_000)
    answers = found(cluster, 4, GROUP, "g", "h", "g").coordinators
    assert [(each.key, each.error_code, each.node_id) for each in answers] == [
        (key, 0, 1) for key in ("g", "h", "g")
    ]
    alone = found(cluster, 3, GROUP, "h")
    assert (alone.error_code, alone.node_id) == (0, 1)
    assert (alone.host, alone.port) == (answers[1].host, answers[1].port)


@pytest.mark.parametrize("kind", [2, -1])
def test_a_coordinator_of_another_kind_is_refused_and_no_topic_is_made(cluster, kind):
    (answer,) = found(cluster, 4, kind, "g").coordinators
    assert (answer.error_code, answer.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert "groups (0) and transactions (1) only" in answer.error_message
    older = found(cluster, 3, kind, "g")
    assert (older.error_code, older.error_message) == (answer.error_code, answer.error_message)
    cluster.loop.run_for(1_000)
    assert not cluster.zookeeper.children("/brokers/topics")
