"""Resources, patterns, operations and permissions of access rules, with Kafka's numbers and names.

The names are those of the JSON in ZooKeeper. Source: the Kafka protocol; KIP-4, KIP-140, KIP-290.
"""

import enum
from typing import Self


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
    """What may be done to a resource; ALL is every operation."""

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
"""To create and describe tokens, and commits in two phases (KIP-373, KIP-939)."""


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
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE),
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
"""Whoever may do one of these may do the operation, too. That holds for permission alone: who is
forbidden to read may still be permitted to describe."""

ALL_BITS = sum(1 << each for each in AclOperation)


def operation_bits(operation: AclOperation) -> int:
    """Return the operations that a rule for `operation` is about, as bits by their numbers."""
    return ALL_BITS if operation is AclOperation.ALL else 1 << operation


def granting_bits(operation: AclOperation) -> int:
    """Return the operations of which any one, permitted, permits `operation`."""
    return 1 << operation | sum(1 << each for each in _IMPLIED_BY.get(operation, ()))
