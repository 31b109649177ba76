"""The rights around consumer groups, beyond the table: topics that a member or an observer may not
see."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_rules import AclOperation, ResourceType
from storage_engine.tests.broker.groups.consumer_member import ConsumerMember, settle
from storage_engine.tests.broker.guards.guarded_cluster import (
    ADMIN,
    BOB,
    allow_only,
    come_as,
    guarded_cluster,
    wait_for_coordinators,
)

O, GROUP, TOPIC = AclOperation, ResourceType.GROUP, ResourceType.TOPIC  # noqa: E741
READ_G, DESCRIBE_G = (O.READ, GROUP, "g"), (O.DESCRIBE, GROUP, "g")
SEES_MINE = (O.DESCRIBE, TOPIC, "mine")


@pytest.fixture
def cluster(tmp_path):
    """The client is Bob, without rights; there are the topics `mine` and `secret`."""
    made = guarded_cluster(tmp_path)
    for name in ("mine", "secret"):
        assert not made.create_topic(name).error_code
    wait_for_coordinators(made)
    allow_only(made, [])
    come_as(made, BOB)
    yield made
    made.close()


def members_of(cluster, *topics: str) -> ConsumerMember:
    """A member that an administrator has started."""
    come_as(cluster, ADMIN)
    member = ConsumerMember(cluster, "m", topics)
    settle(member, rounds=3)
    come_as(cluster, BOB)
    return member


def owned_names(cluster, member: ConsumerMember) -> set[str | None]:
    return {cluster[1].parts.cluster.metadata.topic_name(each) for each in member.owned}


def test_a_group_is_shown_to_who_may_describe_its_topics(cluster):
    member = members_of(cluster, "mine")
    allow_only(cluster, [DESCRIBE_G, SEES_MINE])
    described = member.described(include_authorized_operations=True)
    assert (described.error_code, len(described.members)) == (0, 1)
    assert described.authorized_operations == 1 << O.DESCRIBE


def test_a_group_with_a_hidden_topic_is_an_error_without_members(cluster):
    member = members_of(cluster, "mine", "secret")
    allow_only(cluster, [DESCRIBE_G, SEES_MINE])
    described = member.described(include_authorized_operations=True)
    assert ErrorCode.of(described.error_code) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert described.members == []
    assert described.error_message == "the group has topics that the client may not describe"


def test_a_subscription_with_one_hidden_topic_is_refused(cluster):
    allow_only(cluster, [READ_G, SEES_MINE])
    refused = ConsumerMember(cluster, "m", ["mine", "secret"])
    assert refused.beat() is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert ConsumerMember(cluster, "m", ["mine"]).beat() is ErrorCode.NONE


def test_a_pattern_matches_no_topic_that_the_member_may_not_describe(cluster):
    allow_only(cluster, [READ_G, SEES_MINE])
    member = ConsumerMember(cluster, "m", None, pattern=".*")
    settle(member)
    assert owned_names(cluster, member) == {"mine"}


def test_a_pattern_is_resolved_again_when_rules_change(cluster):
    allow_only(cluster, [READ_G, SEES_MINE])
    member = ConsumerMember(cluster, "m", None, pattern="mine|secret")
    settle(member)
    allow_only(cluster, [READ_G, SEES_MINE, (O.DESCRIBE, TOPIC, "secret")])
    settle(member, rounds=30)
    assert owned_names(cluster, member) == {"mine", "secret"}
    allow_only(cluster, [READ_G, (O.DESCRIBE, TOPIC, "secret")])
    settle(member, rounds=30)
    assert owned_names(cluster, member) == {"secret"}


def test_a_member_that_may_not_read_any_more_is_told_no_assignment(cluster):
    allow_only(cluster, [READ_G, SEES_MINE])
    member = ConsumerMember(cluster, "m", ["mine"])
    settle(member, rounds=3)
    allow_only(cluster, [DESCRIBE_G])
    answer = member.ask()
    assert ErrorCode.of(answer.error_code) is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert answer.assignment is None
