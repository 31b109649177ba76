"""The client of one request, and its rights."""

from collections.abc import Callable, Collection, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple
from uuid import UUID

from storage_engine.broker.access.access_control import AccessControl, ClientOfBroker
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.handlers.api_call import AnyCall, ApiCall, Handler
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_rules import CLUSTER_NAME, AclOperation, ResourceType
from storage_engine.core.transactions.transaction_state import coordinated_name
from storage_engine.protocol.apis.spec import Req, Resp

REFUSALS: dict[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error codes of refusals, by type of resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardParts:
    """The parts of the broker that guards use."""

    access: AccessControl
    metadata: MetadataCache
    when_known: Callable[[Callable[[], None]], None]
    """Calls back once this broker has the cluster's metadata, or has waited too long for it."""


class Right(NamedTuple):
    """A right that a request requires."""

    operation: AclOperation
    kind: ResourceType
    name: str


ASKED_AGAIN_MAX = 500
"""The most names that are checked again at once, after a change of rules: some milliseconds."""


class GrantedRights:
    """The rights that a request was granted, which are checked again where it acts after a wait. As
    long as no rule changes, that costs one comparison."""

    __slots__ = ("_access", "_client", "_each", "_instead", "_request", "_revision", "_whole")

    def __init__(
        self,
        access: AccessControl,
        client: ClientOfBroker,
        request: str,
        whole: tuple[Right, ...],
        each: AclOperation | None,
        instead: Right | None,
    ) -> None:
        """`whole`: the rights to the request as a whole; `each`: the operation on each resource
        that it names, unless it has the right `instead`."""
        self._access = access
        self._client = client
        self._request = request
        self._revision = access.authorizer.revision
        self._whole = whole
        self._each = each
        self._instead = instead

    def add_each(self, operation: AclOperation) -> None:
        """Add the operation on each resource that the request names to the rights as a whole."""
        self._each = operation

    def refusal(self, kind: ResourceType | None = None, name: str = "") -> ErrorCode:
        if self._access.authorizer.revision == self._revision:
            return ErrorCode.NONE
        for right in self._whole:
            if not self._may(right, is_logged=True):
                return REFUSALS[right.kind]
        if kind is None or self._each is None:
            return ErrorCode.NONE
        if self._instead is not None and self._may(self._instead):
            return ErrorCode.NONE
        is_allowed = self._may(Right(self._each, kind, name), is_logged=True)
        return ErrorCode.NONE if is_allowed else REFUSALS[kind]

    def refused(self, kind: ResourceType, names: Collection[str]) -> Collection[str] | None:
        if self._access.authorizer.revision == self._revision:
            return ()
        if len(names) > ASKED_AGAIN_MAX:
            return None
        return {name for name in names if self.refusal(kind, name) is not ErrorCode.NONE}

    def _may(self, right: Right, *, is_logged: bool = False) -> bool:
        operation, kind, name = right
        if kind is ResourceType.TRANSACTIONAL_ID:
            name = coordinated_name(name)
        if is_logged:
            return self._access.allows_or_logs(
                self._client, operation, kind, name, request=self._request
            )
        return self._access.allows(self._client, operation, kind, name)


class RequestClient:
    """The client of a request, with its rights. `may` and `refused` log refusals."""

    __slots__ = ("_access", "_call", "parts")

    def __init__(self, parts: GuardParts, call: AnyCall) -> None:
        self.parts = parts
        self._access = parts.access
        self._call = call

    def grant(
        self,
        whole: tuple[Right, ...] = (),
        *,
        each: AclOperation | None = None,
        instead: Right | None = None,
    ) -> None:
        """Record the rights that the request requires, before they are checked: if it is carried
        out, they were granted. Later changes of the rules count."""
        call = self._call
        present = call.rights
        if isinstance(present, GrantedRights) and each is not None:
            # The rights as a whole were checked before.
            present.add_each(each)
        else:
            call.rights = GrantedRights(
                self._access, call.connection, call.spec.name, whole, each, instead
            )

    def may(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        if kind is ResourceType.TRANSACTIONAL_ID:
            # Rules have the sink's own name, not the names of its members.
            name = coordinated_name(name)
        call = self._call
        return self._access.allows_or_logs(
            call.connection, operation, kind, name, request=call.spec.name
        )

    def may_to_cluster(self, operation: AclOperation) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_unlogged(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Like `may`, without a log line: for items left out of an answer without an error."""
        if kind is ResourceType.TRANSACTIONAL_ID:
            name = coordinated_name(name)
        return self._access.allows(self._call.connection, operation, kind, name)

    def may_some(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether the client may do the operation on any resource of the type."""
        connection = self._call.connection
        authorizer = self._access.authorizer
        return authorizer.allows_some(connection.principal, connection.peer_host, operation, kind)

    def refused(
        self, operation: AclOperation, kind: ResourceType, names: Iterable[str]
    ) -> Generator[None, None, Collection[str]]:
        """The names on which the client may not do the operation."""
        refused: dict[str, None] = {}
        for name in names:
            if name not in refused and not self.may_unlogged(operation, kind, name):
                refused[name] = None
            yield None
        self.log_refused(operation, kind, refused)
        return refused.keys()

    def log_refused(
        self, operation: AclOperation, kind: ResourceType, names: Collection[str]
    ) -> None:
        if names:
            call = self._call
            self._access.log_denied(
                call.connection, operation, kind, list(names), request=call.spec.name
            )

    def operations(self, kind: ResourceType, name: str) -> int:
        """The operations that the client may do on the resource, as bits."""
        connection = self._call.connection
        return self._access.authorizer.operations(
            connection.principal, connection.peer_host, kind, name
        )

    def topic_name(self, topic_id: UUID) -> str | None:
        return self.parts.metadata.topic_name(topic_id)


class Asked(NamedTuple, Generic[Req, Resp]):
    """A request that a guard checks before its handler."""

    client: RequestClient
    call: ApiCall[Resp]
    request: Req
    handler: Handler[Resp, Req]


Guard = Callable[[Asked[Req, Resp]], Steps | None]
"""Answers a request itself, or has the handler answer the permitted part and adds the refusals to
the answer."""


AnyGuard = Guard[Any, Any]


def passed(handler: Handler[Resp, Req], call: ApiCall[Resp], request: Req) -> Steps:
    """The handler's own work, as a part of a guard's."""
    steps = handler(call, request)
    if steps is not None:
        yield from steps
