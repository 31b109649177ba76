"""Access rules and filters, as requests give them by Kafka's numbers."""

import pytest

from storage_engine.core.security.acl_rules import (
    CLUSTER_NAME,
    AccessRule,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
    binding_of,
    filter_of,
)


def _from_request(**changed):
    fields = {
        "resource_type": 2,
        "name": "t",
        "pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission": 3,
    }
    return binding_of(**{**fields, **changed})


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"resource_type": 1}, "no rules about resources of type 1"),
        ({"pattern_type": 2}, "pattern type 2: a rule has 3"),
        ({"operation": 9}, "ClusterAction does not exist for a resource Topic"),
        ({"permission": 0}, "no permission type 0"),
        ({"name": "a/b"}, "'/', '.', '..'"),
        ({"name": ".."}, "'/', '.', '..'"),
        ({"name": ""}, "1 to 500 characters"),
        ({"name": "x" * 501}, "1 to 500 characters"),
        ({"principal": "alice"}, "kind:name"),
        ({"principal": "User:" + "x" * 3000}, "more than 2000"),
        ({"host": ""}, "the host is an address"),
        ({"resource_type": 4, "operation": 9, "name": "other"}, f"is named {CLUSTER_NAME}"),
    ],
)
def test_an_impossible_rule_is_refused_with_its_reason(changed, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        _from_request(**changed)


def test_a_rule_of_a_request_is_taken_as_it_is() -> None:
    assert _from_request() == AclBinding(
        ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL),
        AccessRule("User:alice", "*", AclOperation.READ, AclPermission.ALLOW),
    )


@pytest.mark.parametrize(
    ("pattern_type", "found"),
    [
        (1, {"t", "t-1", "*", "t-"}),
        (2, {"t-", "t-1", "*"}),
        (3, {"t-1"}),
        (4, set()),
    ],
)
def test_a_filter_finds_by_name_or_by_all_that_covers_the_name(pattern_type, found) -> None:
    """Pattern type 1 is any, 2 every rule about that resource, 3 and 4 that pattern alone."""
    wanted = filter_of(
        resource_type=2,
        name="t-1" if pattern_type != 1 else None,
        pattern_type=pattern_type,
        principal=None,
        host=None,
        operation=1,
        permission=1,
    )
    patterns = [
        *(ResourcePattern(ResourceType.TOPIC, name) for name in ("t", "t-1", "*")),
        ResourcePattern(ResourceType.TOPIC, "t-", PatternType.PREFIXED),
        ResourcePattern(ResourceType.GROUP, "t-1"),
    ]
    assert {each.name for each in patterns if wanted.finds_pattern(each)} == found
