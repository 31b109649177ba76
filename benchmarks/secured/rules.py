"""The cost of a decision in a cluster with 10,000 access rules."""

import statistics
from collections.abc import Callable, Sequence

from benchmarks.support.rounds import Figure, Goal, cpu_seconds, judged, plain_spread, rounded
from storage_engine.core.security.acl_rules import (
    AccessRule,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from storage_engine.core.security.authorizer import Authorizer, grouped
from storage_engine.core.security.principal import USER, Principal

RULES = 10_000
USERS = 500
REMEMBERED_GOAL_US = Goal(most=2.0)
FRESH_GOAL_US = Goal(most=50.0)

_LITERAL, _PREFIXED, _DENIED = 7_000, 1_500, 500
_OF_ONE = RULES - _LITERAL - _PREFIXED - _DENIED
"""The rules of one consumer, which may read as many topics, and write none."""
_LONGEST_PREFIX = 249
_REMEMBERED, _TIMES = 1_000, 50
_FRESH = 5_000
_ANYWHERE = 200

_READER = Principal("reader")


def decisions(rounds: int) -> list[Figure]:
    """Measure the microseconds of a decision that is remembered, and of one that is not."""
    authorizer = Authorizer(frozenset(), allow_if_no_rule=False)
    for pattern, rules in grouped(iter(_bindings())).items():
        authorizer.put(pattern, rules)
    authorizer.rules_are_known()
    users = [Principal(f"user-{number}") for number in range(USERS)]
    short = [f"topic-{number}" for number in range(_FRESH)]
    # No prefix is longer than these names, so all prefixes are compared.
    names = [_named(number, _LONGEST_PREFIX) for number in range(_FRESH)]
    kept = [f"topic-{number}" for number in range(_REMEMBERED)]
    hosts = iter(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(2**24))

    def ask(host: str, asked: Sequence[str]) -> None:
        allows = authorizer.allows
        for number, name in enumerate(asked):
            user = users[number % USERS]
            allows(user, host, AclOperation.WRITE, ResourceType.TOPIC, name)

    def remembered() -> None:
        for _ in range(_TIMES):
            ask("10.255.0.1", kept)

    def anywhere() -> None:
        for _ in range(_ANYWHERE):
            authorizer.allows_some(_READER, next(hosts), AclOperation.WRITE, ResourceType.TOPIC)

    remembered()
    return [
        _figure("remembered", remembered, _TIMES * _REMEMBERED, rounds, REMEMBERED_GOAL_US),
        _figure("not remembered", lambda: ask(next(hosts), short), _FRESH, rounds, FRESH_GOAL_US),
        _figure("not remembered, prefixes of 249 lengths", lambda: ask(next(hosts), names), _FRESH,
                rounds, FRESH_GOAL_US),
        _figure("whether it may write to any topic, of a user with 1,000 rules", anywhere,
                _ANYWHERE, rounds, FRESH_GOAL_US),
    ]  # fmt: skip


def _figure(what: str, work: Callable[[], None], count: int, rounds: int, goal: Goal) -> Figure:
    times_us = [cpu_seconds(work) / count * 1e6 for _ in range(rounds)]
    median = rounded(statistics.median(times_us))
    return Figure(
        what=f"a decision with {RULES:,} rules, {what}, us",
        measured=median,
        spread=plain_spread(times_us),
        **judged(goal, median),
    )


def _bindings() -> list[AclBinding]:
    allow, deny = AclPermission.ALLOW, AclPermission.DENY
    found = [
        _binding(f"topic-{number // 4}", f"user-{number % USERS}", AclOperation.WRITE, allow)
        for number in range(_LITERAL)
    ]
    found += [
        _binding(
            _named(number, number % _LONGEST_PREFIX + 1),
            f"user-{number}",
            AclOperation.READ,
            allow,
            PatternType.PREFIXED,
        )
        for number in range(_PREFIXED)
    ]
    found += [
        _binding(f"topic-{number}", f"user-{number}", AclOperation.WRITE, deny)
        for number in range(_DENIED)
    ]
    found += [
        _binding(f"topic-{number}", _READER.name, AclOperation.READ, allow)
        for number in range(_OF_ONE)
    ]
    return found


def _named(number: int, length: int) -> str:
    """A topic's name, or the beginning of one."""
    return f"topic-{number}".ljust(length, "x")[:length]


def _binding(
    topic: str,
    user: str,
    operation: AclOperation,
    permission: AclPermission,
    kind: PatternType = PatternType.LITERAL,
) -> AclBinding:
    rule = AccessRule(f"{USER}:{user}", "*", operation, permission)
    return AclBinding(ResourcePattern(ResourceType.TOPIC, topic, kind), rule)
