"""Builds the authorization of a broker's clients, where there is an authorizer."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial

from storage_engine.broker.access.access_control import AccessControl
from storage_engine.broker.access.rule_changes import RuleChanges
from storage_engine.broker.access.rule_watch import RuleWatch
from storage_engine.broker.handlers.administration.metadata import ClusterForClients
from storage_engine.broker.handlers.api_call import ApiCall, HandlerTable
from storage_engine.broker.wiring.parts import BrokerPorts
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_rules import CLUSTER_NAME, AclOperation, ResourceType
from storage_engine.core.security.authorizer import Authorizer, super_users_of
from storage_engine.core.settings.settings import ALLOW_IF_NO_RULE, AUTHORIZER, SUPER_USERS
from storage_engine.core.transactions.transaction_state import coordinated_name
from storage_engine.net.connection import Connection
from storage_engine.protocol.apis.fetch import ANY_REPLICA_ID
from storage_engine.protocol.apis.metadata import MetadataResponse
from storage_engine.protocol.apis.spec import Resp

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessParts:
    """The authorizer of a broker and its rules."""

    control: AccessControl
    watch: RuleWatch
    changes: RuleChanges

    def close(self) -> None:
        self.watch.close()
        self.changes.close()

    def is_granted_to_act_as_broker(self, connection: Connection) -> bool:
        """Whether a rule grants it, or the principal is a super user."""
        return self.control.authorizer.is_granted(
            connection.principal,
            connection.peer_host,
            AclOperation.CLUSTER_ACTION,
            ResourceType.CLUSTER,
            CLUSTER_NAME,
        )

    def may_act_as_broker(self, connection: Connection, request: str) -> bool:
        """Whether the connection's principal may act as a broker; a refusal is logged."""
        return self.control.allows_or_logs(
            connection,
            AclOperation.CLUSTER_ACTION,
            ResourceType.CLUSTER,
            CLUSTER_NAME,
            request=request,
        )

    def may_still_write(
        self, call: ApiCall[Resp], transactional_id: str | None, topic: str
    ) -> ErrorCode:
        """Check a batch that is appended after a wait: NONE, or the error for the producer."""
        asks, connection = (
            partial(self.control.allows_or_logs, request=call.spec.name),
            call.connection,
        )
        write = AclOperation.WRITE
        if transactional_id is not None:
            name, kind = coordinated_name(transactional_id), ResourceType.TRANSACTIONAL_ID
            if not asks(connection, write, kind, name):
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not asks(connection, write, ResourceType.TOPIC, topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.NONE

    def may_create(self, call: ApiCall[MetadataResponse], topic: str) -> bool:
        """Whether the client may create the topic by asking for it."""
        create, connection = AclOperation.CREATE, call.connection
        return self.control.allows(
            connection, create, ResourceType.CLUSTER, CLUSTER_NAME
        ) or self.control.allows_or_logs(
            connection, create, ResourceType.TOPIC, topic, request=call.spec.name
        )

    def unreadable(
        self, call: ApiCall[Resp], replica_id: int, topics: Iterable[str]
    ) -> Collection[str]:
        """Check a fetch: the topics that the consumer may not read. A broker that repairs a log
        fetches from any replica, and may do that with ClusterAction, as when it fetches as a
        replica."""
        allows, connection = self.control.allows, call.connection
        read, kind = AclOperation.READ, ResourceType.TOPIC
        refused = [topic for topic in topics if not allows(connection, read, kind, topic)]
        is_of_any_replica = replica_id == ANY_REPLICA_ID
        if (
            refused
            and is_of_any_replica
            and allows(connection, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        ):
            return ()
        if refused:
            self.control.log_denied(connection, read, kind, refused, request=call.spec.name)
        return refused


def build_access(ports: BrokerPorts) -> AccessParts | None:
    """The authorizer; None where it is not configured, and every client may do everything."""
    config = ports.config
    if config.get(AUTHORIZER) is None:
        return None
    tls = config.zookeeper_tls
    if tls is None or tls.keystore_location is None:
        log.warning(
            "this broker has access rules, but shows ZooKeeper no certificate: whoever reaches "
            "zookeeper.connect=%s can end the sessions of brokers, unless a firewall keeps them "
            "away; set zookeeper.ssl.* and ssl.clientAuth=need in ZooKeeper (docs/security.md)",
            config.zookeeper_connect,
        )
    super_users = config.get(SUPER_USERS)
    authorizer = Authorizer(
        super_users_of(super_users) if isinstance(super_users, str) else frozenset(),
        allow_if_no_rule=config.flag(ALLOW_IF_NO_RULE),
    )
    watch = RuleWatch(ports.metadata_store, ports.scheduler, ports.clock, authorizer)
    return AccessParts(
        control=AccessControl(authorizer=authorizer),
        watch=watch,
        changes=RuleChanges(ports.metadata_store, watch),
    )


def guard_all(table: HandlerTable, access: AccessParts | None, cluster: ClusterForClients) -> None:
    """Put the guard of its API before each handler, where there is an authorizer."""
    if access is None:
        return
    # The table of guards is long, and brokers without an authorizer don't need it.
    from storage_engine.broker.guards.client import GuardParts
    from storage_engine.broker.guards.cluster import BROKERS_ONLY
    from storage_engine.broker.guards.table import guarded

    parts = GuardParts(
        access=access.control, metadata=cluster.metadata, when_known=cluster.when_known
    )
    table.wrap(partial(guarded, parts))
    table.reserve(BROKERS_ONLY)
