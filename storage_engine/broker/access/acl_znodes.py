"""The znodes of access rules, as Kafka's AclAuthorizer has them.

    /kafka-acl/<type>/<name>                         rules for a name, or for `*`
    /kafka-acl-extended/prefixed/<type>/<prefix>     rules for all names with a prefix
    /kafka-acl-changes/acl_changes_<number>          `<type>:<name>`, the former were changed
    /kafka-acl-extended-changes/acl_changes_<number> JSON, the latter were changed

Brokers delete the notices of changes after a while. Source: KIP-290.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from storage_engine.core.security.acl_rules import (
    MAX_HOST,
    MAX_PRINCIPAL,
    MAX_RESOURCE_NAME,
    AccessRule,
    ResourcePattern,
)
from storage_engine.core.security.acl_types import (
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from storage_engine.zookeeper.znode_json import (
    ZnodeFormatError,
    decode_object,
    encode_object,
    entries,
    str_field,
)

LITERAL_ROOT = "/kafka-acl"
EXTENDED_ROOT = "/kafka-acl-extended"
_STORES: dict[PatternType, str] = {
    PatternType.LITERAL: LITERAL_ROOT,
    PatternType.PREFIXED: f"{EXTENDED_ROOT}/prefixed",
}

CHARACTER_BYTES = 4
"""The most bytes of one character in UTF-8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclZNode:
    """The rules about one pattern."""

    rules: frozenset[AccessRule]

    @staticmethod
    def parent(kind: ResourceType, pattern_type: PatternType) -> str:
        return f"{_STORES[pattern_type]}/{kind}"

    @classmethod
    def path(cls, pattern: ResourcePattern) -> str:
        return f"{cls.parent(pattern.resource_type, pattern.pattern_type)}/{pattern.name}"

    def encode(self) -> bytes:
        acls = [
            {
                "principal": rule.principal,
                "permissionType": str(rule.permission),
                "operation": str(rule.operation),
                "host": rule.host,
            }
            for rule in sorted(self.rules)
        ]
        return encode_object({"version": 1, "acls": acls})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "AclZNode":
        """ZnodeFormatError when one of the rules can't be read: it may be a denial."""
        found = entries(path, decode_object(path, data), "acls")
        return cls(rules=frozenset(_rule(path, item) for item in found))


def _rule(path: str, item: object) -> AccessRule:
    if not isinstance(item, dict):
        raise ZnodeFormatError(f"znode {path}: a rule of 'acls' is no object")
    fields: dict[str, Any] = item
    operation_name = str_field(path, fields, "operation", max_bytes=MAX_HOST)
    permission_name = str_field(path, fields, "permissionType", max_bytes=MAX_HOST)
    operation = AclOperation.named(operation_name)
    permission = AclPermission.named(permission_name)
    if operation is None or permission is None:
        raise ZnodeFormatError(
            f"znode {path}: there is no rule '{permission_name} {operation_name}'"
        )
    principal = str_field(path, fields, "principal", max_bytes=CHARACTER_BYTES * MAX_PRINCIPAL)
    host = str_field(path, fields, "host", max_bytes=CHARACTER_BYTES * MAX_HOST)
    return AccessRule(principal, host, operation, permission)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclChangeZNode:
    """A notice that the rules about a pattern were changed."""

    PARENTS: ClassVar[dict[PatternType, str]] = {
        PatternType.LITERAL: "/kafka-acl-changes",
        PatternType.PREFIXED: "/kafka-acl-extended-changes",
    }

    pattern: ResourcePattern

    @classmethod
    def prefix(cls, pattern_type: PatternType) -> str:
        """The path to which ZooKeeper appends a number."""
        return f"{cls.PARENTS[pattern_type]}/acl_changes_"

    @classmethod
    def path(cls, pattern_type: PatternType, child: str) -> str:
        return f"{cls.PARENTS[pattern_type]}/{child}"

    def encode(self) -> bytes:
        kind, name, pattern_type = self.pattern
        if pattern_type is PatternType.LITERAL:
            return f"{kind}:{name}".encode()
        return encode_object(
            {
                "version": 1,
                "resourceType": str(kind),
                "name": name,
                "patternType": pattern_type.name,
            }
        )

    @classmethod
    def decode(cls, pattern_type: PatternType, child: str, data: bytes) -> "AclChangeZNode":
        path = cls.path(pattern_type, child)
        if pattern_type is PatternType.LITERAL:
            kind_name, _, name = data.decode("utf-8", errors="replace").partition(":")
        else:
            fields = decode_object(path, data)
            most = CHARACTER_BYTES * MAX_RESOURCE_NAME
            kind_name = str_field(path, fields, "resourceType", max_bytes=most)
            name = str_field(path, fields, "name", max_bytes=most)
        # Kafka has written both TOPIC and Topic.
        kind = next((k for k in ResourceType if kind_name in (k.text, k.name)), None)
        if kind is None or not name:
            raise ZnodeFormatError(f"znode {path} names no resource")
        return cls(pattern=ResourcePattern(kind, name, pattern_type))


def acl_paths() -> Iterable[str]:
    """The nodes that rules and notices stand below."""
    yield from AclChangeZNode.PARENTS.values()
    for pattern_type in PatternType:
        for kind in ResourceType:
            yield AclZNode.parent(kind, pattern_type)
