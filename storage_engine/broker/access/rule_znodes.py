"""Reads the rules about one pattern, so that what can't be read permits nothing."""

import logging

from storage_engine.broker.access.acl_znodes import AclZNode
from storage_engine.core.ports import ZkReply
from storage_engine.core.security.acl_rules import EVERY_USER, AccessRule, ResourcePattern
from storage_engine.core.security.acl_types import WILDCARD, AclOperation, AclPermission
from storage_engine.zookeeper.znode_json import ZnodeFormatError

log = logging.getLogger(__name__)

NOTHING_FOR_ANYBODY = frozenset(
    {AccessRule(EVERY_USER, WILDCARD, AclOperation.ALL, AclPermission.DENY)}
)
"""The rules that stand for those that can't be read, since they may have been denials."""


def rules_in(pattern: ResourcePattern, reply: ZkReply) -> frozenset[AccessRule]:
    """Return the rules that ZooKeeper has; `reply` is an answer, or says that there is no node."""
    if reply.is_absent:
        return frozenset()
    try:
        return AclZNode.decode(AclZNode.path(pattern), reply.data).rules
    except ZnodeFormatError as failure:
        log.error("only super users may use resource=%s: %s", pattern, failure)
        return NOTHING_FOR_ANYBODY
