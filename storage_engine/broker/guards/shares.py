"""Guards of the two common shapes.

    whole     the request asks for rights, and is refused as a whole where one is missing
    by item   each item of a list is a resource: those that are refused are taken out of the
              request, the handler answers the others, and the refusals are added to its answer

The work for many items is done in steps. A refused resource is answered alike whether it exists or
not, since nobody looks.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage_engine.broker.guards.client import (
    REFUSALS,
    Guard,
    RequestClient,
    Right,
    passed,
)
from storage_engine.broker.handlers.api_call import Amend, AnyHandler, ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.security.acl_types import CLUSTER_NAME, AclOperation, ResourceType

Building = Generator[None, Any, Any]
"""Builds an answer, or a row of one, in steps."""

Refusal = Callable[[Any, int], Building]
"""(request, error code) -> the answer to a request that is refused as a whole."""


def briefly(answer: Callable[[int], Any]) -> Refusal:
    """A refusal that has nothing but the error code."""

    def refusal(_request: Any, code: int) -> Building:
        yield from ()
        return answer(code)

    return refusal


def whole(rights: Callable[[Any], Iterable[Right]], refusal: Refusal) -> Guard:
    """Lets the request through when the client has all of the rights."""

    def guard(
        client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
    ) -> Steps | None:
        asked = tuple(rights(request))
        client.grant(asked)
        for right in asked:
            if not client.may(*right):
                return _refuse(call, refusal(request, int(REFUSALS[right.kind])))
        return handler(call, request)

    return guard


def of_cluster(operation: AclOperation, refusal: Refusal) -> Guard:
    """Asks for a right to the cluster."""
    right = Right(operation, ResourceType.CLUSTER, CLUSTER_NAME)
    return whole(lambda _request: (right,), refusal)


def _refuse(call: ApiCall[Any], building: Building) -> Steps:
    answer = yield from building
    call.respond(answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRows:
    """Writes the refusal of a topic: its name, and a row for each partition."""

    topic_class: Any
    partition_class: Any
    topic: str = "name"
    """The field of the answer, as are the next three."""
    partitions: str = "partitions"
    index: str = "partition_index"
    code: str = "error_code"
    extra: dict[str, Any] = field(default_factory=dict)
    """Further fields of each row."""
    asked_topic: str = "name"
    """The field of the request, as are the next two."""
    asked_partitions: str = "partitions"
    asked_index: str | None = "partition_index"
    """None where partitions are plain numbers."""

    def __call__(self, asked: Any, code: int) -> Building:
        rows = []
        for each in getattr(asked, self.asked_partitions) or ():
            number = each if self.asked_index is None else getattr(each, self.asked_index)
            rows.append(self.partition_class(**{self.index: number, self.code: code}, **self.extra))
            yield None
        name = getattr(asked, self.asked_topic)
        return self.topic_class(**{self.topic: name, self.partitions: rows})

    def all_of(self, topics: Iterable[Any] | None, code: int) -> Building:
        """The refusal of all of these topics."""
        rows = []
        for each in topics or ():
            rows.append((yield from self(each, code)))
            yield None
        return rows


def row_of(make: Callable[[Any, int], Any]) -> Callable[[Any, int], Building]:
    """A row that is built in one step."""

    def row(asked: Any, code: int) -> Building:
        yield from ()
        return make(asked, code)

    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class ByItem:
    """The guard of a request whose items are resources."""

    operation: AclOperation
    kind: ResourceType
    items: str
    """The field of the request with the list."""
    name: str | None
    """The field of an item with the name of the resource; None where it is the item itself."""
    rows: str
    """The field of the answer with the list."""
    row: Callable[[Any, int], Building]
    """The row of a refused item."""
    answer_class: Any

    def __call__(
        self, client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
    ) -> Steps:
        client.grant(each=self.operation)
        items: Sequence[Any] = getattr(request, self.items) or ()
        names = [self._name_of(item) for item in items]
        refused = yield from client.refused(self.operation, self.kind, names)
        if not refused:
            yield from passed(handler, call, request)
            return
        code = int(REFUSALS[self.kind])
        kept, rows = [], []
        for item in items:
            if self._name_of(item) in refused:
                rows.append((yield from self.row(item, code)))
            else:
                kept.append(item)
            yield None
        if not kept:
            call.respond(self.answer_class(**{self.rows: rows}))
            return
        setattr(request, self.items, kept)
        call.amend = with_rows(self.rows, rows)
        yield from passed(handler, call, request)

    def _name_of(self, item: Any) -> str:
        name: str = item if self.name is None else getattr(item, self.name)
        return name


def with_rows(field_name: str, rows: Sequence[Any]) -> Amend[Any]:
    """Adds rows to a list of the answer."""

    def amend(answer: Any) -> Building:
        yield from ()
        present = getattr(answer, field_name) or ()
        setattr(answer, field_name, [*present, *rows])
        return answer

    return amend


def only(field_name: str, is_shown: Callable[[Any], bool]) -> Amend[Any]:
    """Leaves rows out of a list of the answer."""

    def amend(answer: Any) -> Building:
        shown = []
        for row in getattr(answer, field_name) or ():
            if is_shown(row):
                shown.append(row)
            yield None
        setattr(answer, field_name, shown)
        return answer

    return amend


def first_asks(rights: Callable[[Any], Iterable[Right]], refusal: Refusal, then: Guard) -> Guard:
    """Asks for rights to the request as a whole, and then what `then` asks for."""

    def guard(
        client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
    ) -> Steps | None:
        asked = tuple(rights(request))
        client.grant(asked)
        for right in asked:
            if not client.may(*right):
                return _refuse(call, refusal(request, int(REFUSALS[right.kind])))
        return then(client, call, request, handler)

    return guard
