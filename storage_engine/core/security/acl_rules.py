"""Access rules, and filters that find them: resources, patterns, operations and permissions with
Kafka's numbers, and the names of the JSON in ZooKeeper. Source: KIP-4, KIP-140, KIP-290.
"""

import enum
from dataclasses import dataclass
from typing import NamedTuple, Self

from storage_engine.core.security.principal import USER


class _WireName(enum.IntEnum):
    """A value with its number on the wire and its name in JSON."""

    text: str

    def __new__(cls, value: int, text: str) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.text = text
        return member

    def __str__(self) -> str:
        return self.text

    @classmethod
    def named(cls, text: str) -> Self | None:
        """Return the member with that name in JSON, if there is one."""
        return next((each for each in cls if each.text == text), None)

    @classmethod
    def coded(cls, code: int) -> Self | None:
        """Return the member with that number on the wire, if there is one."""
        return next((each for each in cls if each == code), None)


ANY = 1
"""The number that stands for every value of a field, in filters only."""


class ResourceType(_WireName):
    """The kinds of things that rules are about."""

    TOPIC = (2, "Topic")
    GROUP = (3, "Group")
    CLUSTER = (4, "Cluster")
    TRANSACTIONAL_ID = (5, "TransactionalId")


TYPES_WITHOUT_RULES = (6, 7)
"""Delegation tokens and users, about which Kafka has rules (KIP-48, KIP-373)."""


class PatternType(_WireName):
    """How a rule names its resources. The literal `*` means all of them."""

    LITERAL = (3, "Literal")
    PREFIXED = (4, "Prefixed")


MATCH = 2
"""The pattern type of a filter that finds all rules about a resource of the given name."""


class AclOperation(_WireName):
    """An operation on a resource; ALL stands for every one."""

    ALL = (2, "All")
    READ = (3, "Read")
    WRITE = (4, "Write")
    CREATE = (5, "Create")
    DELETE = (6, "Delete")
    ALTER = (7, "Alter")
    DESCRIBE = (8, "Describe")
    CLUSTER_ACTION = (9, "ClusterAction")
    DESCRIBE_CONFIGS = (10, "DescribeConfigs")
    ALTER_CONFIGS = (11, "AlterConfigs")
    IDEMPOTENT_WRITE = (12, "IdempotentWrite")


OPERATIONS_WITHOUT_RULES = (13, 14, 15)
"""Kafka's CreateTokens, DescribeTokens and TwoPhaseCommit (KIP-373, KIP-939)."""


class AclPermission(_WireName):
    """Whether a rule forbids or permits."""

    DENY = (2, "Deny")
    ALLOW = (3, "Allow")


CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type Cluster."""

WILDCARD = "*"
"""Every resource as a literal name, every host, and every name of a user."""

_O = AclOperation

OPERATIONS_OF: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        _O.READ,
        _O.DELETE,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
}
"""The operations that a resource can be asked for; a rule may also name ALL."""

_IMPLIED_BY: dict[AclOperation, tuple[AclOperation, ...]] = {
    _O.DESCRIBE: (_O.READ, _O.WRITE, _O.DELETE, _O.ALTER),
    _O.DESCRIBE_CONFIGS: (_O.ALTER_CONFIGS,),
}
"""The operations whose permission implies the operation. Denials imply nothing: a principal that is
forbidden to read may still be permitted to describe."""

ALL_BITS = sum(1 << each for each in AclOperation)


def operation_bits(operation: AclOperation) -> int:
    """Return the operations that a rule for `operation` is about, as bits by their numbers."""
    return ALL_BITS if operation is AclOperation.ALL else 1 << operation


def granting_bits(operation: AclOperation) -> int:
    """Return the operations of which any one, permitted, permits `operation`."""
    return 1 << operation | sum(1 << each for each in _IMPLIED_BY.get(operation, ()))


EVERY_USER = f"{USER}:{WILDCARD}"

MAX_RESOURCE_NAME = 500
"""The longest name of a resource in a rule, in characters: it becomes a part of a path in
ZooKeeper. Topics have 249 at most."""

MAX_PRINCIPAL = 2_000
"""The longest principal in a rule; the subject of a certificate may be long."""

MAX_HOST = 255


class ResourcePattern(NamedTuple):
    """The resources that rules are about: one name, all names (the literal `*`), or those with a
    prefix."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.resource_type}:{self.pattern_type}:{self.name}"

    def covers(self, name: str) -> bool:
        """Return True when the pattern matches the name of a resource of its type."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class AccessRule(NamedTuple):
    """A permission or denial of an operation for one principal from one host."""

    principal: str
    """`User:alice`; `User:*` is everybody."""
    host: str
    """An address; `*` is every one."""
    operation: AclOperation
    permission: AclPermission


class AclBinding(NamedTuple):
    """A rule, and the resources it is about."""

    pattern: ResourcePattern
    rule: AccessRule


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Finds bindings. None matches every value of a field."""

    resource_type: ResourceType | None = None
    name: str | None = None
    pattern_type: PatternType | None = None
    is_match: bool = False
    """Finds every rule about the resource `name`: literal, wildcard and prefixed ones."""
    principal: str | None = None
    host: str | None = None
    operation: AclOperation | None = None
    permission: AclPermission | None = None
    finds_nothing: bool = False
    """True for a filter of rules that Kafka has and that can't be created here."""

    def finds_pattern(self, pattern: ResourcePattern) -> bool:
        if self.finds_nothing:
            return False
        if self.resource_type is not None and pattern.resource_type is not self.resource_type:
            return False
        if self.is_match:
            return self.name is None or pattern.covers(self.name)
        if self.pattern_type is not None and pattern.pattern_type is not self.pattern_type:
            return False
        return self.name is None or pattern.name == self.name

    def finds_rule(self, rule: AccessRule) -> bool:
        return (
            self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (None, rule.operation)
            and self.permission in (None, rule.permission)
        )


class AclFormatError(ValueError):
    """Numbers or names of a request that make no rule and no filter."""


def filter_of(
    *,
    resource_type: int,
    name: str | None,
    pattern_type: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    """Return the filter of a request; AclFormatError when a number has no meaning."""
    pattern = None
    if pattern_type not in (ANY, MATCH):
        pattern = PatternType.coded(pattern_type)
        if pattern is None:
            raise AclFormatError(f"there is no pattern type {pattern_type}")
    if resource_type in TYPES_WITHOUT_RULES or operation in OPERATIONS_WITHOUT_RULES:
        return AclFilter(finds_nothing=True)
    return AclFilter(
        resource_type=_resource_type(resource_type, may_be_any=True),
        name=name,
        pattern_type=pattern,
        is_match=pattern_type == MATCH,
        principal=principal,
        host=host,
        operation=_operation(operation, may_be_any=True),
        permission=_permission(permission, may_be_any=True),
    )


def binding_of(
    *,
    resource_type: int,
    name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> AclBinding:
    """Return the binding that a request wants to create; AclFormatError when there can't be such a
    rule."""
    kind = _resource_type(resource_type)
    what = _operation(operation)
    verdict = _permission(permission)
    pattern = PatternType.coded(pattern_type)
    assert kind is not None and what is not None and verdict is not None
    if pattern is None:
        raise AclFormatError(
            f"pattern type {pattern_type}: a rule has {PatternType.LITERAL:d} (literal) or "
            f"{PatternType.PREFIXED:d} (prefixed)"
        )
    if what is not AclOperation.ALL and what not in OPERATIONS_OF[kind]:
        raise AclFormatError(f"the operation {what} does not exist for a resource {kind}")
    _check_name(kind, pattern, name)
    _check_principal(principal)
    if not host or len(host) > MAX_HOST or not host.isprintable():
        raise AclFormatError(f"the host is an address or *, of at most {MAX_HOST} characters")
    return AclBinding(
        ResourcePattern(kind, name, pattern), AccessRule(principal, host, what, verdict)
    )


def _resource_type(code: int, *, may_be_any: bool = False) -> ResourceType | None:
    if may_be_any and code == ANY:
        return None
    found = ResourceType.coded(code)
    if found is None:
        raise AclFormatError(f"there are no rules about resources of type {code}")
    return found


def _operation(code: int, *, may_be_any: bool = False) -> AclOperation | None:
    if may_be_any and code == ANY:
        return None
    found = AclOperation.coded(code)
    if found is None:
        raise AclFormatError(f"there is no operation {code}")
    return found


def _permission(code: int, *, may_be_any: bool = False) -> AclPermission | None:
    if may_be_any and code == ANY:
        return None
    found = AclPermission.coded(code)
    if found is None:
        raise AclFormatError(f"there is no permission type {code}: a rule denies or allows")
    return found


def _check_name(kind: ResourceType, pattern: PatternType, name: str) -> None:
    if not name or len(name) > MAX_RESOURCE_NAME:
        raise AclFormatError(
            f"the name of a resource has 1 to {MAX_RESOURCE_NAME} characters, not {len(name)}"
        )
    # It becomes the name of a node in ZooKeeper.
    if "/" in name or name in (".", "..") or not name.isprintable():
        raise AclFormatError(
            f"no rule can name the resource {name!r}: '/', '.', '..' and unprintable characters "
            "are not possible; a rule for a shorter prefix is"
        )
    if (
        kind is ResourceType.CLUSTER
        and pattern is PatternType.LITERAL
        and name not in (CLUSTER_NAME, WILDCARD)
    ):
        raise AclFormatError(f"the resource of type Cluster is named {CLUSTER_NAME}")


def _check_principal(principal: str) -> None:
    kind, colon, name = principal.partition(":")
    if not (colon and kind and name) or not principal.isprintable():
        raise AclFormatError("the principal must be kind:name, for example User:alice")
    if len(principal) > MAX_PRINCIPAL:
        raise AclFormatError(f"the principal has more than {MAX_PRINCIPAL} characters")
