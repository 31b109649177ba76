"""The patterns of consumer groups: what is refused, what matches, and who may see it."""

import time
from collections.abc import Set

import pytest

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.access.access_control import AccessControl
from storage_engine.broker.groups import patterns
from storage_engine.broker.groups.patterns import (
    DescribableTopics,
    TopicPatterns,
    matching,
    pattern_problem,
)
from storage_engine.core.groups.consumer.events import RequestingClient, ResolvePattern
from storage_engine.core.security.acl_rules import (
    AccessRule,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from storage_engine.core.security.authorizer import Authorizer
from storage_engine.core.security.principal import Principal

SHORT_S = 0.5
"""Far more than a turn; the slowest pattern took 2 s before there were bounds."""

BOB = RequestingClient(client_id="c", host="/10.0.0.7", principal=Principal("bob"))


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a", "'(a' is no regular expression of RE2's syntax: missing ): (a"),
        ("a**", "'a**' is no regular expression of RE2's syntax: bad repetition operator: **"),
        ("(a)\\1", "is no regular expression of RE2's syntax: invalid escape sequence: \\1"),
        ("(?=a)", "is no regular expression of RE2's syntax: invalid perl operator: (?="),
        ("a" * 2_049, "a regular expression has at most 2048 bytes"),
        ("ключ.*", "'ключ.*' has characters that no topic's name has"),
        ("\\pL" * 11, "has more than 10 Unicode classes: name the letters"),
        ("(?i)\\pL", "has a Unicode class without regard to case: name the letters"),
        ("a{999}b{999}c{999}", "is too complex: 3001 steps, at most 2500 are possible"),
        ("(\n", "'(\\n' is no regular expression of RE2's syntax: missing ): (\\n"),
    ],
)
def test_a_pattern_that_can_not_be_used_is_refused_with_the_reason(pattern, reason):
    problem = pattern_problem(pattern)
    assert problem is not None
    assert reason in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    "pattern", ["a.*", "(?i)abc", "^a|b$", "\\pL+", "[[:alpha:]]+", "(?:x+x+)+y"]
)
def test_a_pattern_of_re2s_syntax_is_taken(pattern):
    assert pattern_problem(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    ["(?i)[\\x80-\\xff]" * 130, "(?:a{1,30}){1,30}" * 100, "\\W" * 1_000, "(?i)" + "\\pL" * 100],
)
def test_the_verdict_on_a_hostile_pattern_comes_soon(pattern):
    begun = time.perf_counter()
    pattern_problem(pattern)
    assert time.perf_counter() - begun < SHORT_S


def test_a_pattern_matches_whole_names():
    assert matching("orders", ["orders", "orders-2", "my-orders"]) == ["orders"]


def test_a_pattern_that_takes_exponential_time_elsewhere_is_matched_at_once():
    begun = time.perf_counter()
    assert matching("(a+a+)+b", ["a" * 249] * 100) == []
    assert time.perf_counter() - begun < SHORT_S


class Resolver:
    """TopicPatterns in simulated time."""

    def __init__(self, *topics: str, access: AccessControl | None = None) -> None:
        self.loop = SimulatedLoop()
        self.topics = topics
        self.resolved: list[frozenset[str] | None] = []
        self.patterns = TopicPatterns(
            self.loop,
            self.loop,
            self.loop,
            topics=lambda: self.topics,
            describable=DescribableTopics(access),
        )

    def ask(self, pattern: str, client: RequestingClient = BOB) -> None:
        wanted = ResolvePattern(group_id="g", pattern=pattern, client=client)
        self.patterns.resolve(wanted, self.resolved.append)

    def resolve(self, pattern: str, client: RequestingClient = BOB) -> Set[str] | None:
        count = len(self.resolved)
        self.ask(pattern, client)
        self.loop.run_until(lambda: len(self.resolved) > count)
        return self.resolved[-1]


def test_the_matching_topics_are_found():
    assert Resolver("a-1", "a-2", "b").resolve("a-.*") == {"a-1", "a-2"}


def test_no_topic_at_all_is_an_answer():
    assert Resolver().resolve(".*") == frozenset()


def test_many_names_are_matched_in_pieces():
    names = [f"t-{number}" for number in range(1_000)]
    resolver = Resolver(*names)
    before_ms = resolver.loop.now_ms
    assert resolver.resolve("t-.*") == set(names)
    # Each piece takes a millisecond of another thread.
    assert resolver.loop.now_ms - before_ms == 1_000 / patterns.NAMES_A_PIECE


def test_a_stored_pattern_that_can_not_be_used_matches_nothing(caplog):
    assert Resolver("a").resolve("(a") == frozenset()
    assert "no regular expression of RE2's syntax: missing )" in caplog.text


def test_patterns_that_are_asked_at_once_are_answered_in_turn():
    resolver = Resolver("a", "b")
    for pattern in ("a", "b", "c"):
        resolver.ask(pattern)
    resolver.loop.run_for(1_000)
    assert resolver.resolved == [{"a"}, {"b"}, frozenset()]


def test_a_pattern_that_takes_too_long_is_given_up_and_the_next_one_is_resolved():
    resolver = Resolver(*(f"t-{number}" for number in range(1_000)))
    resolver.loop.work_ms = patterns.RESOLVE_MAX_MS
    assert resolver.resolve("t-.*") is None
    resolver.loop.work_ms = 1
    assert resolver.resolve("t-1") == {"t-1"}


def test_a_pattern_that_fails_is_answered_and_the_next_one_is_resolved(monkeypatch):
    resolver = Resolver("a")
    with monkeypatch.context() as broken:
        broken.setattr(patterns, "matching", lambda *_: (_ for _ in ()).throw(OSError("gone")))
        assert resolver.resolve("a") is None
    assert resolver.resolve("a") == {"a"}


def allowing(principal: str, prefix: str) -> AccessControl:
    """Rules by which a principal may describe topics with a prefix."""
    authorizer = Authorizer(frozenset(), allow_if_no_rule=False)
    pattern = ResourcePattern(ResourceType.TOPIC, prefix, PatternType.PREFIXED)
    rule = AccessRule(principal, "*", AclOperation.DESCRIBE, AclPermission.ALLOW)
    authorizer.put(pattern, frozenset({rule}))
    authorizer.rules_are_known()
    return AccessControl(authorizer=authorizer)


def test_a_topic_that_the_client_may_not_describe_never_matches():
    resolver = Resolver("a-1", "b-1", access=allowing("User:bob", "a-"))
    assert resolver.resolve(".*") == {"a-1"}


def test_another_principal_with_the_same_pattern_finds_nothing():
    resolver = Resolver("a-1", access=allowing("User:bob", "a-"))
    assert resolver.resolve(".*", BOB._replace(principal=Principal("eve"))) == frozenset()


def test_a_client_without_a_principal_finds_nothing():
    resolver = Resolver("a-1", access=allowing("User:bob", "a-"))
    assert resolver.resolve(".*", BOB._replace(principal=None)) == frozenset()
