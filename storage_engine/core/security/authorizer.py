"""Decides whether a principal may do something to a resource, as Kafka's AclAuthorizer does.

    a super user                              -> yes
    the rules were never read                 -> no
    a rule denies it                          -> no
    a rule allows it, or what implies it      -> yes
    nobody has a rule about the resource      -> allow.everyone.if.no.acl.found
    otherwise                                 -> no

All rules are found by the resource that is asked for:

    literal     type, name   -> rules          one look-up for the name, one for `*`
    prefixed    type, prefix -> rules          one look-up for each length that a prefix has
    rules of a pattern: (principal, host) -> operations that are allowed and denied, as bits

So the time of a question depends neither on the number of resources with rules nor on the number of
principals that a resource has rules for. Answers are cached until any rule changes. Source:
KIP-140, KIP-290, KIP-679.
"""

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from storage_engine.core.errors import ConfigError
from storage_engine.core.security.acl_rules import (
    EVERY_USER,
    OPERATIONS_OF,
    WILDCARD,
    AccessRule,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
    granting_bits,
    operation_bits,
)
from storage_engine.core.security.principal import Principal


class Verdicts(NamedTuple):
    """The rules for one principal at one host about one resource: operations as bits."""

    allowed: int
    denied: int
    has_rules: bool
    """Whether anybody has a rule about the resource."""


class _PatternRules:
    __slots__ = ("bits", "rules")

    def __init__(self, rules: frozenset[AccessRule]) -> None:
        self.rules = rules
        self.bits: dict[tuple[str, str], tuple[int, int]] = {}
        for rule in rules:
            key = rule.principal, same_host(rule.host)
            allowed, denied = self.bits.get(key, (0, 0))
            if rule.permission is AclPermission.ALLOW:
                allowed |= operation_bits(rule.operation)
            else:
                denied |= operation_bits(rule.operation)
            self.bits[key] = allowed, denied


_Who = tuple[tuple[str, str], ...]
_Granted = tuple[ResourceType, str, AclOperation]
"""A type of resource, a principal, and an operation that it is allowed."""
_NO_RULES: frozenset[AccessRule] = frozenset()


class AclIndex:
    """Rules by their patterns."""

    def __init__(self) -> None:
        self._patterns: dict[ResourcePattern, _PatternRules] = {}
        self._literal: dict[ResourceType, dict[str, _PatternRules]] = {
            each: {} for each in ResourceType
        }
        self._prefixed: dict[ResourceType, dict[str, _PatternRules]] = {
            each: {} for each in ResourceType
        }
        self._lengths: dict[ResourceType, tuple[int, ...]] = dict.fromkeys(ResourceType, ())
        """The lengths that the prefixes of a type have, ascending."""
        self._length_counts: dict[ResourceType, Counter[int]] = {
            each: Counter() for each in ResourceType
        }
        self._allowing: dict[_Granted, set[ResourcePattern]] = {}
        """The patterns by which a principal is allowed an operation, at whatever host: a search for
        a rule to write must not go through thousands of rules to read."""

    def __len__(self) -> int:
        """The number of patterns with rules."""
        return len(self._patterns)

    def patterns(self) -> list[ResourcePattern]:
        return list(self._patterns)

    def rules(self, pattern: ResourcePattern) -> frozenset[AccessRule]:
        found = self._patterns.get(pattern)
        return _NO_RULES if found is None else found.rules

    def bindings(self) -> Iterator[AclBinding]:
        for pattern, found in self._patterns.items():
            for rule in found.rules:
                yield AclBinding(pattern, rule)

    def put(self, pattern: ResourcePattern, rules: frozenset[AccessRule]) -> None:
        """Replace the rules about a pattern; an empty set removes the pattern."""
        self._forget(pattern)
        if not rules:
            return
        kind, name, pattern_type = pattern
        found = self._patterns[pattern] = _PatternRules(rules)
        if pattern_type is PatternType.LITERAL:
            self._literal[kind][name] = found
        else:
            self._prefixed[kind][name] = found
            self._length_counts[kind][len(name)] += 1
            self._lengths[kind] = tuple(sorted(self._length_counts[kind]))
        for granted in _granted(kind, found):
            self._allowing.setdefault(granted, set()).add(pattern)

    def _forget(self, pattern: ResourcePattern) -> None:
        found = self._patterns.pop(pattern, None)
        if found is None:
            return
        kind, name, pattern_type = pattern
        if pattern_type is PatternType.LITERAL:
            del self._literal[kind][name]
        else:
            del self._prefixed[kind][name]
            counts = self._length_counts[kind]
            counts[len(name)] -= 1
            if not counts[len(name)]:
                del counts[len(name)]
                self._lengths[kind] = tuple(sorted(counts))
        for granted in _granted(kind, found):
            patterns = self._allowing[granted]
            patterns.discard(pattern)
            if not patterns:
                del self._allowing[granted]

    def verdicts(self, kind: ResourceType, name: str, principal: str, host: str) -> Verdicts:
        """Return the combined verdict of all rules about the resource `name`."""
        who = _who(principal, host)
        allowed = denied = 0
        has_rules = False
        literal = self._literal[kind]
        found = [literal.get(name), literal.get(WILDCARD)]
        prefixed = self._prefixed[kind]
        for length in self._lengths[kind]:
            if length > len(name):
                break
            found.append(prefixed.get(name[:length]))
        for rules in found:
            if rules is not None:
                has_rules = True
                for key in who:
                    bits = rules.bits.get(key)
                    if bits is not None:
                        allowed |= bits[0]
                        denied |= bits[1]
        return Verdicts(allowed, denied, has_rules)

    def allows_some(
        self, kind: ResourceType, operation: AclOperation, principal: str, host: str
    ) -> bool:
        """Whether there is a resource of that type to which the principal may do `operation`, by
        its rules alone (KIP-679)."""
        who = _who(principal, host)
        granting, bit = granting_bits(operation), 1 << operation
        if self._denies(self._literal[kind].get(WILDCARD), who, bit):
            return False
        return any(
            self._allows(self._patterns[pattern], who, granting)
            and not self._is_overruled(pattern, who, bit)
            for each in {principal, EVERY_USER}
            for other in AclOperation
            if granting & 1 << other
            for pattern in self._allowing.get((kind, each, other), ())
        )

    def denies_all(
        self, kind: ResourceType, operation: AclOperation, principal: str, host: str
    ) -> bool:
        """Whether the operation is forbidden for all resources of the type."""
        rules = self._literal[kind].get(WILDCARD)
        return self._denies(rules, _who(principal, host), 1 << operation)

    def _is_overruled(self, pattern: ResourcePattern, who: _Who, bit: int) -> bool:
        """Whether a denial covers all resources that the pattern matches."""
        kind, name, pattern_type = pattern
        if pattern_type is PatternType.LITERAL and self._denies(self._patterns[pattern], who, bit):
            return True
        prefixed = self._prefixed[kind]
        if pattern_type is PatternType.LITERAL and name == WILDCARD:
            return False
        return any(
            self._denies(prefixed.get(name[:length]), who, bit)
            for length in self._lengths[kind]
            if length <= len(name)
        )

    @staticmethod
    def _denies(rules: _PatternRules | None, who: _Who, bit: int) -> bool:
        return rules is not None and any(rules.bits.get(key, (0, 0))[1] & bit for key in who)

    @staticmethod
    def _allows(rules: _PatternRules, who: _Who, granting: int) -> bool:
        return any(rules.bits.get(key, (0, 0))[0] & granting for key in who)


def _granted(kind: ResourceType, rules: _PatternRules) -> set[_Granted]:
    return {
        (kind, principal, operation)
        for (principal, _), (allowed, _) in rules.bits.items()
        for operation in AclOperation
        if allowed & 1 << operation
    }


def same_host(host: str) -> str:
    """Return one text for all forms of an IPv6 address: Java writes 0:0:0:0:0:0:0:1 for ::1. An
    IPv4-mapped address, as IPv6 sockets report it, becomes the IPv4 address."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


def _who(principal: str, host: str) -> _Who:
    """Return the (principal, host) keys of rules for that principal at that host."""
    host = same_host(host)
    return (
        (principal, host),
        (principal, WILDCARD),
        (EVERY_USER, host),
        (EVERY_USER, WILDCARD),
    )


def grouped(bindings: Iterator[AclBinding]) -> Mapping[ResourcePattern, frozenset[AccessRule]]:
    found: dict[ResourcePattern, set[AccessRule]] = {}
    for pattern, rule in bindings:
        found.setdefault(pattern, set()).add(rule)
    return {pattern: frozenset(rules) for pattern, rules in found.items()}


CACHED_MAX = 50_000
"""The most cached answers: clients choose the names that they ask about."""

CACHED_NAME_MAX = 255
"""The longest name whose answer is cached: a group's may have 32,767 bytes."""

_Question = tuple[Principal, str, AclOperation, ResourceType, str]


class Authorizer:
    """The rules of the cluster as this broker knows them."""

    def __init__(self, super_users: frozenset[Principal], *, allow_if_no_rule: bool) -> None:
        self._super_users = super_users
        self._allow_if_no_rule = allow_if_no_rule
        self._index = AclIndex()
        self._cache: dict[_Question, bool] = {}
        self._are_rules_known = False
        self.revision = 0
        """Grows with each change of the rules: what was allowed before may not be any more."""

    @property
    def index(self) -> AclIndex:
        """The rules, to be read only."""
        return self._index

    def put(self, pattern: ResourcePattern, rules: frozenset[AccessRule]) -> None:
        if self._index.rules(pattern) != rules:
            self._index.put(pattern, rules)
            self._cache.clear()
            self.revision += 1

    def rules_are_known(self) -> None:
        """Apply the rules from now on: all of them have been read once."""
        self._are_rules_known = True
        self._cache.clear()
        self.revision += 1

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        kind: ResourceType,
        name: str,
    ) -> bool:
        """Whether `principal` at the address `host` may do `operation` to the resource."""
        question = (principal, host, operation, kind, name)
        known = self._cache.get(question)
        if known is not None:
            return known
        answer = self._decide(question)
        if len(name) <= CACHED_NAME_MAX:
            if len(self._cache) >= CACHED_MAX:
                self._cache.clear()
            self._cache[question] = answer
        return answer

    def is_granted(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        kind: ResourceType,
        name: str,
    ) -> bool:
        """Whether `principal` may do it by a rule, or as a super user: not only because nobody has
        a rule about the resource."""
        return self._by_rule((principal, host, operation, kind, name)) is True

    def allows_some(
        self, principal: Principal, host: str, operation: AclOperation, kind: ResourceType
    ) -> bool:
        """Whether there is any resource of the type that `principal` may do `operation` to."""
        if principal in self._super_users:
            return True
        if not self._are_rules_known:
            return False
        text = str(principal)
        if self._allow_if_no_rule:
            return not self._index.denies_all(kind, operation, text, host)
        return self._index.allows_some(kind, operation, text, host)

    def operations(self, principal: Principal, host: str, kind: ResourceType, name: str) -> int:
        """The operations that `principal` may do to the resource, as bits by their numbers."""
        return sum(
            1 << operation
            for operation in OPERATIONS_OF[kind]
            if self.allows(principal, host, operation, kind, name)
        )

    def _decide(self, question: _Question) -> bool:
        found = self._by_rule(question)
        return self._allow_if_no_rule if found is None else found

    def _by_rule(self, question: _Question) -> bool | None:
        """Return the answer of the rules; None where nobody has a rule about the resource."""
        principal, host, operation, kind, name = question
        if principal in self._super_users:
            return True
        if not self._are_rules_known:
            return False
        found = self._index.verdicts(kind, name, str(principal), host)
        if found.denied & 1 << operation:
            return False
        if found.allowed & granting_bits(operation):
            return True
        return False if found.has_rules else None


def super_users_of(text: str, *, key: str = "super.users") -> frozenset[Principal]:
    """Return the principals of the setting: `User:admin;User:CN=broker,O=org`, separated by
    semicolons since names of certificates have commas. ConfigError for any other form."""
    parts = [part.strip() for part in text.split(";")]
    try:
        return frozenset(Principal.parse(part, key=key) for part in parts if part)
    except ConfigError as error:
        raise ConfigError(f"{error}; several are separated by ';'") from None
