"""Decides whether a principal may do something to a resource, as Kafka's AclAuthorizer does.

    a super user                              -> yes
    the rules were never read                 -> no
    a rule denies it                          -> no
    a rule allows it, or what implies it      -> yes
    nobody has a rule about the resource      -> allow.everyone.if.no.acl.found
    otherwise                                 -> no

Answers are cached until any rule changes. Source: KIP-140, KIP-290, KIP-679.
"""

from storage_engine.core.errors import ConfigError
from storage_engine.core.security.acl_index import AclIndex
from storage_engine.core.security.acl_rules import AccessRule, ResourcePattern
from storage_engine.core.security.acl_types import (
    OPERATIONS_OF,
    AclOperation,
    ResourceType,
    granting_bits,
)
from storage_engine.core.security.principal import Principal

CACHED_MAX = 50_000
"""Answers that are kept: clients choose the names that they ask about."""

CACHED_NAME_MAX = 255
"""The longest name whose answer is kept: a group's may have 32,767 bytes."""

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
        """Replace the rules about a pattern."""
        if self._index.rules(pattern) != rules:
            self._index.put(pattern, rules)
            self._cache.clear()
            self.revision += 1

    def rules_are_known(self) -> None:
        """All rules were read once: from now on they decide."""
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
        """None where nobody has a rule about the resource."""
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
    semicolons since names of certificates have commas. ConfigError for what is none."""
    parts = [part.strip() for part in text.split(";")]
    try:
        return frozenset(Principal.parse(part, key=key) for part in parts if part)
    except ConfigError as error:
        raise ConfigError(f"{error}; several are separated by ';'") from None
