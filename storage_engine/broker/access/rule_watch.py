"""Keeps the authorizer's rules equal to ZooKeeper's: reads all of them at the start, and again the
rules that a notice names.

    a watch fires, or a session is lost -> list both folders of notices, with a watch
                                        -> read the notices that are new -> read what they name

The watch is set before anything is read, and after a lost session everything is read again. So a
broker that was away, or that was notified twice, has the rules that ZooKeeper has. Answers of
ZooKeeper come in the order of the questions: the newest rules are applied last. Every broker
removes notices that it has known for long enough, by its own clock, as with settings.

The znodes of access rules, as Kafka's AclAuthorizer has them.

    /kafka-acl/<type>/<name>                         rules for a name, or for `*`
    /kafka-acl-extended/prefixed/<type>/<prefix>     rules for all names with a prefix
    /kafka-acl-changes/acl_changes_<number>          `<type>:<name>`, the former were changed
    /kafka-acl-extended-changes/acl_changes_<number> JSON, the latter were changed

Brokers delete the notices of changes after a while. Source: KIP-290.

Reads the rules about one pattern, so that unreadable rules permit nothing.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from storage_engine.core.ports import Clock, MetadataStore, Scheduler, SessionState, ZkReply
from storage_engine.core.security.acl_rules import (
    EVERY_USER,
    MAX_HOST,
    MAX_PRINCIPAL,
    MAX_RESOURCE_NAME,
    WILDCARD,
    AccessRule,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from storage_engine.core.security.authorizer import Authorizer
from storage_engine.zookeeper.flow import Flow, Flows, NewestWatches, Resume, ZookeeperFlows, pause
from storage_engine.zookeeper.znode_json import (
    JsonValue,
    ZnodeFormatError,
    decode_object,
    encode_object,
    entries,
    str_field,
)

log = logging.getLogger(__name__)

Item = TypeVar("Item")

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
        """Raises ZnodeFormatError when one of the rules can't be read: it may be a denial."""
        found = entries(path, decode_object(path, data), "acls")
        return cls(rules=frozenset(_rule(path, item) for item in found))


def _rule(path: str, item: JsonValue) -> AccessRule:
    if not isinstance(item, dict):
        raise ZnodeFormatError(f"znode {path}: a rule of 'acls' is no object")
    operation_name = str_field(path, item, "operation", max_bytes=MAX_HOST)
    permission_name = str_field(path, item, "permissionType", max_bytes=MAX_HOST)
    operation = AclOperation.named(operation_name)
    permission = AclPermission.named(permission_name)
    if operation is None or permission is None:
        raise ZnodeFormatError(
            f"znode {path}: there is no rule '{permission_name} {operation_name}'"
        )
    principal = str_field(path, item, "principal", max_bytes=CHARACTER_BYTES * MAX_PRINCIPAL)
    host = str_field(path, item, "host", max_bytes=CHARACTER_BYTES * MAX_HOST)
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
    """The parents of the nodes for rules and notices."""
    yield from AclChangeZNode.PARENTS.values()
    for pattern_type in PatternType:
        for kind in ResourceType:
            yield AclZNode.parent(kind, pattern_type)


NOTHING_FOR_ANYBODY = frozenset(
    {AccessRule(EVERY_USER, WILDCARD, AclOperation.ALL, AclPermission.DENY)}
)
"""The rules in place of unreadable ones, which may have been denials."""


def rules_in(pattern: ResourcePattern, reply: ZkReply) -> frozenset[AccessRule]:
    """Return the rules in ZooKeeper's reply; none when it says that there is no node."""
    if reply.is_absent:
        return frozenset()
    try:
        return AclZNode.decode(AclZNode.path(pattern), reply.data).rules
    except ZnodeFormatError as failure:
        log.error(
            "only super users may use resource=%s: %s; repair or remove the znode", pattern, failure
        )
        return NOTHING_FOR_ANYBODY


RETRY_MS = 200
"""Pause before another try; well below the second in which a change is in force everywhere."""

READ_TOGETHER = 500
"""The most nodes of one read: the other requests to ZooKeeper wait behind it."""

KEEP_MS = 15 * 60 * 1000
"""How long a notice is kept, as in Kafka: far longer than a session lasts without an answer."""


class RuleWatch:
    """A broker's view of the rules in ZooKeeper."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        clock: Clock,
        authorizer: Authorizer,
    ) -> None:
        self._metadata_store = metadata_store
        self._scheduler = scheduler
        self._clock = clock
        self._authorizer = authorizer
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._flows = Flows()
        self._watches = NewestWatches(self._flows)
        self._seen: dict[PatternType, dict[str, int]] = {each: {} for each in PatternType}
        """Notice -> when it was first seen, in monotonic ms."""
        self._is_all_to_read = True
        self._to_list: set[PatternType] = set(PatternType)
        self._idle: Resume | None = None
        """Continues the flow that waits for something to do."""
        self._is_started = False
        self._is_ready = False
        self._is_trouble_logged = False
        self._waiting: list[Callable[[], None]] = []

    def when_ready(self, act: Callable[[], None]) -> None:
        """Start to watch and read, unless started; call `act` once all rules are read."""
        if self._is_ready:
            act()
            return
        self._waiting.append(act)
        if not self._is_started:
            self._is_started = True
            self._metadata_store.add_state_listener(self._on_state)
            self._flows.start(self._follow())

    def close(self) -> None:
        self._flows.close()

    def refresh(self, pattern: ResourcePattern) -> Flow[bool]:
        """Read the rules about one pattern; return whether ZooKeeper has answered."""
        reply = yield from self._zookeeper.get(AclZNode.path(pattern))
        return self._take(pattern, reply)

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            # The loss may last until notices have come and gone.
            self._is_all_to_read = True
            self._wake()

    def _wake(self) -> None:
        idle, self._idle = self._idle, None
        if idle is not None:
            idle(None)

    def _until_woken(self, resume: Resume) -> None:
        if self._to_list or self._is_all_to_read:
            resume(None)
        else:
            self._idle = resume

    def _follow(self) -> Flow[None]:
        """Follow one change after the other; never returns."""
        yield from self._make_folders()
        while True:
            yield self._until_woken
            if self._is_all_to_read:
                self._to_list = set(PatternType)
            if not (yield from self._catch_up()):
                self._log_trouble()
                yield from pause(self._scheduler, RETRY_MS)
                continue
            self._is_trouble_logged = False
            if not self._is_ready:
                self._become_ready()

    def _become_ready(self) -> None:
        self._is_ready = True
        self._authorizer.rules_are_known()
        log.info("access rules read patterns=%d", len(self._authorizer.index))
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            act()

    def _log_trouble(self) -> None:
        if not self._is_trouble_logged:
            self._is_trouble_logged = True
            log.warning(
                "access rules not read: ZooKeeper does not answer, or refuses; trying again"
            )

    def _make_folders(self) -> Flow[None]:
        for path in acl_paths():
            reply = yield from self._zookeeper.create(path, b"", make_parents=True)
            while not reply.ok and not (yield from self._exists(path)):
                self._log_trouble()
                yield from pause(self._scheduler, RETRY_MS)
                reply = yield from self._zookeeper.create(path, b"", make_parents=True)

    def _exists(self, path: str) -> Flow[bool]:
        reply = yield from self._zookeeper.exists(path)
        return reply.ok

    def _catch_up(self) -> Flow[bool]:
        """Read whatever is due; return whether all of it was read."""
        fresh: list[tuple[PatternType, str]] = []
        for pattern_type in sorted(self._to_list):
            names = yield from self._list(pattern_type)
            if names is None:
                # The new notices of the other folder count as seen.
                self._is_all_to_read |= bool(fresh)
                return False
            fresh += [(pattern_type, name) for name in names]
        if self._is_all_to_read:
            # A session that is lost from here on sets it again.
            self._is_all_to_read = False
            is_read = yield from self._read_all()
            self._is_all_to_read |= not is_read
            return is_read
        return (yield from self._read_notices(fresh))

    def _list(self, pattern_type: PatternType) -> Flow[list[str] | None]:
        """Return the new notices; None when ZooKeeper does not answer."""

        def changed() -> None:
            self._to_list.add(pattern_type)
            self._wake()

        self._to_list.discard(pattern_type)
        watch = self._watches.newest(pattern_type.name, changed)
        path = AclChangeZNode.PARENTS[pattern_type]
        reply = yield from self._zookeeper.children(path, watch)
        if not reply.ok:
            self._to_list.add(pattern_type)
            return None
        seen = self._seen[pattern_type]
        now_ms = self._clock.monotonic_ms()
        self._seen[pattern_type] = {name: seen.get(name, now_ms) for name in reply.children}
        self._purge(pattern_type, now_ms)
        return [name for name in reply.children if name not in seen]

    def _purge(self, pattern_type: PatternType, now_ms: int) -> None:
        for name, since_ms in self._seen[pattern_type].items():
            if since_ms <= now_ms - KEEP_MS:
                path = AclChangeZNode.path(pattern_type, name)
                self._metadata_store.delete(path, -1, lambda _reply: None)

    def _read_notices(self, fresh: Sequence[tuple[PatternType, str]]) -> Flow[bool]:
        named: dict[ResourcePattern, None] = {}
        for some in _chunks(fresh):
            paths = {AclChangeZNode.path(*each): each for each in some}
            replies = yield from self._zookeeper.get_each(paths)
            for path, reply in replies.items():
                if not reply.ok:
                    # Not answered, or removed as old before it was read here for the first time.
                    self._is_all_to_read = True
                    return False
                pattern_type, notice = paths[path]
                try:
                    node = AclChangeZNode.decode(pattern_type, notice, reply.data)
                    named[node.pattern] = None
                except ZnodeFormatError as failure:
                    log.error("all access rules are read again: %s", failure)
                    self._is_all_to_read = True
        is_read = yield from self._read_patterns(list(named))
        self._is_all_to_read |= not is_read
        return is_read

    def _read_all(self) -> Flow[bool]:
        found: list[ResourcePattern] = []
        for pattern_type in PatternType:
            for kind in ResourceType:
                path = AclZNode.parent(kind, pattern_type)
                reply = yield from self._zookeeper.children(path)
                if not reply.ok and not reply.is_absent:
                    return False
                found += [ResourcePattern(kind, name, pattern_type) for name in reply.children]
        # Patterns known so far may have been removed.
        wanted = dict.fromkeys([*found, *self._authorizer.index.patterns()])
        return (yield from self._read_patterns(list(wanted)))

    def _read_patterns(self, patterns: Sequence[ResourcePattern]) -> Flow[bool]:
        for some in _chunks(patterns):
            by_path = {AclZNode.path(pattern): pattern for pattern in some}
            replies = yield from self._zookeeper.get_each(by_path)
            answered = [self._take(by_path[path], reply) for path, reply in replies.items()]
            if not all(answered):
                return False
        return True

    def _take(self, pattern: ResourcePattern, reply: ZkReply) -> bool:
        is_answer = reply.ok or reply.is_absent
        if is_answer:
            self._authorizer.put(pattern, rules_in(pattern, reply))
        return is_answer


def _chunks(items: Sequence[Item]) -> Iterable[Sequence[Item]]:
    for start in range(0, len(items), READ_TOGETHER):
        yield items[start : start + READ_TOGETHER]
