"""Adds and removes access rules in ZooKeeper.

The rules about one pattern (a resource's name, or a prefix of names) are one node. It is written
only while it has the rules from which the new ones were computed. The same ZooKeeper transaction
(`multi`) writes the notification that other brokers watch for, so no change is without one. This
broker applies the new rules before it answers the client.
"""

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from storage_engine.broker.access.rule_watch import AclChangeZNode, AclZNode, RuleWatch
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ports import MetadataStore, ZkOp, ZkOpKind, ZkReply, ZkStatus
from storage_engine.core.security.acl_rules import (
    AccessRule,
    AclBinding,
    AclFilter,
    ResourcePattern,
)
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows
from storage_engine.zookeeper.znode_json import ZnodeFormatError

log = logging.getLogger(__name__)

MAX_TRIES = 20
"""The most attempts at a change while other brokers keep changing the same rules."""

MAX_RULES_BYTES = 900_000
"""The largest node of rules; ZooKeeper takes at most a megabyte in a request."""

TOGETHER = 32
"""The number of patterns that are changed at the same time."""

_Rules = frozenset[AccessRule]


class RuleOutcome(NamedTuple):
    """The outcome of a change of the rules about one pattern: the failure, or the removed rules."""

    failure: KafkaError | None = None
    removed: _Rules = frozenset()


class RuleChanges:
    """Changes access rules for the clients of this broker."""

    def __init__(self, metadata_store: MetadataStore, watch: RuleWatch) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._watch = watch
        self._flows = Flows()

    def close(self) -> None:
        self._flows.close()

    def create(
        self,
        bindings: Sequence[AclBinding],
        done: Callable[[dict[ResourcePattern, RuleOutcome]], None],
        check_allowed: Callable[[], None],
    ) -> None:
        """Add the rules. `check_allowed` raises KafkaError, before each write, where the client may
        not have rules changed any more."""
        added: dict[ResourcePattern, set[AccessRule]] = {}
        for pattern, rule in bindings:
            added.setdefault(pattern, set()).add(rule)
        changes = {
            pattern: partial(operator.or_, frozenset(rules)) for pattern, rules in added.items()
        }
        self._flows.start(self._change_all(changes, check_allowed), done)

    def delete(
        self,
        patterns: Sequence[ResourcePattern],
        filters: Sequence[AclFilter],
        done: Callable[[dict[ResourcePattern, RuleOutcome]], None],
        check_allowed: Callable[[], None],
    ) -> None:
        """Remove from these patterns the rules that any of the filters finds. `check_allowed` as in
        `create`."""
        changes = {pattern: partial(_without, pattern, filters) for pattern in patterns}
        self._flows.start(self._change_all(changes, check_allowed), done)

    def _change_all(
        self,
        changes: Mapping[ResourcePattern, Callable[[_Rules], _Rules]],
        check_allowed: Callable[[], None],
    ) -> Flow[dict[ResourcePattern, RuleOutcome]]:
        outcomes: dict[ResourcePattern, RuleOutcome] = {}
        patterns = list(changes)
        for start in range(0, len(patterns), TOGETHER):
            some = patterns[start : start + TOGETHER]
            results = yield from self._flows.together(
                self._change(pattern, changes[pattern], check_allowed) for pattern in some
            )
            outcomes.update(zip(some, results, strict=True))
        return outcomes

    def _change(
        self,
        pattern: ResourcePattern,
        change: Callable[[_Rules], _Rules],
        check_allowed: Callable[[], None],
    ) -> Flow[RuleOutcome]:
        path = AclZNode.path(pattern)
        for _ in range(MAX_TRIES):
            read = yield from self._zookeeper.get(path)
            if not read.ok and not read.is_absent:
                return _no_answer(pattern)
            try:
                present = AclZNode.decode(path, read.data).rules if read.ok else frozenset()
            except ZnodeFormatError as failure:
                return _failed(
                    f"{failure}: repair or remove it in ZooKeeper", ErrorCode.UNKNOWN_SERVER_ERROR
                )
            wanted = change(present)
            if wanted == present:
                return RuleOutcome()
            data = AclZNode(rules=wanted).encode()
            if len(data) > MAX_RULES_BYTES and len(wanted) > len(present):
                return _failed(
                    f"{pattern} would have {len(wanted)} rules, more than one node of ZooKeeper "
                    "can hold: use prefixes, or principals that stand for several clients",
                    ErrorCode.INVALID_REQUEST,
                )
            try:
                check_allowed()
            except KafkaError as refusal:
                return RuleOutcome(refusal.as_outcome())
            written = yield from self._zookeeper.multi(_operations(pattern, wanted, data, read))
            if written.ok:
                log.info("access rules changed resource=%s rules=%d", pattern, len(wanted))
                yield from self._watch.refresh(pattern)
                return RuleOutcome(removed=present - wanted)
            if written.status is ZkStatus.UNKNOWN:
                return _no_answer(pattern)
            if written.status is ZkStatus.ILLEGAL:
                return _failed(
                    f"ZooKeeper can't have a node named {pattern.name!r}", ErrorCode.INVALID_REQUEST
                )
        return _failed(
            f"the rules about {pattern} are being changed by others all the time",
            ErrorCode.REQUEST_TIMED_OUT,
        )


def _without(pattern: ResourcePattern, filters: Sequence[AclFilter], present: _Rules) -> _Rules:
    about = [each for each in filters if each.finds_pattern(pattern)]
    return frozenset(rule for rule in present if not any(each.finds_rule(rule) for each in about))


def _operations(pattern: ResourcePattern, wanted: _Rules, data: bytes, read: ZkReply) -> list[ZkOp]:
    path = AclZNode.path(pattern)
    if read.stat is None:
        change = ZkOp(kind=ZkOpKind.CREATE, path=path, data=data)
    elif wanted:
        change = ZkOp(kind=ZkOpKind.SET, path=path, data=data, version=read.stat.version)
    else:
        change = ZkOp(kind=ZkOpKind.DELETE, path=path, version=read.stat.version)
    notice = ZkOp(
        kind=ZkOpKind.CREATE,
        path=AclChangeZNode.prefix(pattern.pattern_type),
        data=AclChangeZNode(pattern=pattern).encode(),
        sequence=True,
    )
    return [change, notice]


def _failed(text: str, code: ErrorCode) -> RuleOutcome:
    return RuleOutcome(KafkaError(text, code))


def _no_answer(pattern: ResourcePattern) -> RuleOutcome:
    return _failed(
        f"ZooKeeper did not answer: the rules about {pattern} may or may not have been changed",
        ErrorCode.REQUEST_TIMED_OUT,
    )
