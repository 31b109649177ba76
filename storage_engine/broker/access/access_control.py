"""The authorization of connections, and the log of refusals.

The logger has the name that Kafka's has. A line names the principal, where it came from, what was
refused and for which request:

    denied principal=User:app host=10.0.0.7 operation=Write resource=Topic:orders request=Produce

Names that clients choose are written as one line. Where one request is refused many resources, one
line names the first of them. Where a principal is refused again and again, the lines are counted
instead, from some number on (`ClientLog`).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from storage_engine.core.printable import printable
from storage_engine.core.security.acl_rules import AclOperation, ResourceType
from storage_engine.core.security.authorizer import Authorizer
from storage_engine.core.security.principal import Principal
from storage_engine.net.client_log import ClientLog

AUDIT_LOGGER = "kafka.authorizer.logger"

NAMED_MAX = 10
"""The most resources that one line names."""


audit = ClientLog(AUDIT_LOGGER)

NAME_CHARACTERS = 250
"""The length at which a name is cut; topic names are shorter."""


class ClientOfBroker(Protocol):
    """The attributes of a connection that its rights depend on."""

    principal: Principal
    peer_host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControl:
    """The authorizer of a broker, and its log."""

    authorizer: Authorizer

    def allows(
        self, client: ClientOfBroker, operation: AclOperation, kind: ResourceType, name: str
    ) -> bool:
        """Whether the client may do the operation; a refusal is not logged."""
        return self.authorizer.allows(client.principal, client.peer_host, operation, kind, name)

    def allows_or_logs(
        self,
        client: ClientOfBroker,
        operation: AclOperation,
        kind: ResourceType,
        name: str,
        *,
        request: str,
    ) -> bool:
        """Whether the client may do the operation; a refusal is logged."""
        is_allowed = self.authorizer.allows(
            client.principal, client.peer_host, operation, kind, name
        )
        if not is_allowed:
            self.log_denied(client, operation, kind, [name], request=request)
        return is_allowed

    def log_denied(
        self,
        client: ClientOfBroker,
        operation: AclOperation,
        kind: ResourceType,
        names: Sequence[str],
        *,
        request: str,
    ) -> None:
        """Log one line about the resources that were refused to a request."""
        if not audit.is_enabled_for(logging.INFO):
            return
        named = ",".join(printable(name[:NAME_CHARACTERS]) for name in names[:NAMED_MAX])
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        principal = printable(str(client.principal)[:NAME_CHARACTERS])
        audit.info(
            f"{principal} {client.peer_host}",
            "denied principal=%s host=%s operation=%s resource=%s:%s%s request=%s",
            principal, client.peer_host, operation,
            kind, named, more, request,
        )  # fmt: skip
