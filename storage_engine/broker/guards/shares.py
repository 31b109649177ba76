"""Guards of the two common shapes.

    whole     the request asks for rights, and is refused as a whole where one is missing
    by item   each item of a list is a resource: those that are refused are taken out of the
              request, the handler answers the others, and the refusals are added to its answer

The work for many items is done in steps. A refused resource is answered alike whether it exists or
not, since it is not looked up.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

from storage_engine.broker.guards.client import (
    REFUSALS,
    Asked,
    Guard,
    Right,
    passed,
)
from storage_engine.broker.handlers.api_call import Amend, ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.security.acl_rules import CLUSTER_NAME, AclOperation, ResourceType
from storage_engine.protocol.apis.spec import Req, Resp

Made = TypeVar("Made")
Item = TypeVar("Item")
Row = TypeVar("Row")

Building = Generator[None, None, Made]
"""Builds an answer, or one row of it, in steps."""

Refusal = Callable[[Req, int], Building[Resp]]
"""(request, error code) -> the answer to a request that is refused as a whole."""


def briefly(answer: Callable[[int], Resp]) -> Refusal[Any, Resp]:
    """A refusal of only the error code."""

    def refusal(_request: Any, code: int) -> Building[Resp]:
        yield from ()
        return answer(code)

    return refusal


def whole(
    rights: Callable[[Req], Iterable[Right]], refusal: Refusal[Req, Resp]
) -> Guard[Req, Resp]:
    """The guard that lets a request through when the client has all of the rights."""

    return first_asks(rights, refusal, lambda asked: asked.handler(asked.call, asked.request))


def of_cluster(operation: AclOperation, refusal: Refusal[Req, Resp]) -> Guard[Req, Resp]:
    """The guard that requires a right to the cluster."""
    right = Right(operation, ResourceType.CLUSTER, CLUSTER_NAME)
    return whole(lambda _request: (right,), refusal)


def first_asks(
    rights: Callable[[Req], Iterable[Right]],
    refusal: Refusal[Req, Resp],
    then: Guard[Req, Resp],
) -> Guard[Req, Resp]:
    """The guard that requires rights to the request as a whole, and then applies `then`."""

    def guard(asked: Asked[Req, Resp]) -> Steps | None:
        client, call, request, _handler = asked
        wanted = tuple(rights(request))
        client.grant(wanted)
        for right in wanted:
            if not client.may(*right):
                return _refuse(call, refusal(request, int(REFUSALS[right.kind])))
        return then(asked)

    return guard


def _refuse(call: ApiCall[Resp], building: Building[Resp]) -> Steps:
    answer = yield from building
    call.respond(answer)


def each_refused(
    items: Iterable[Item] | None, row: Callable[[Item, int], Building[Row]], code: int
) -> Building[list[Row]]:
    """The rows of these refused items."""
    rows = []
    for item in items or ():
        rows.append((yield from row(item, code)))
        yield None
    return rows


def row_of(make: Callable[[Item, int], Row]) -> Callable[[Item, int], Building[Row]]:
    """Make the builder of a row that is built in one step."""

    def row(asked: Item, code: int) -> Building[Row]:
        yield from ()
        return make(asked, code)

    return row


def rows_of(items: Iterable[Item] | None, make: Callable[[Item], Row]) -> Building[list[Row]]:
    """Make a row for each item."""
    rows = []
    for item in items or ():
        rows.append(make(item))
        yield None
    return rows


def of_partitions(
    topic_row: Callable[..., Row], partition_row: Callable[..., Any], **fields: int
) -> Callable[[Any, int], Building[Row]]:
    """The builder of a refused topic's row, whose partitions have the error and these fields."""

    def row(topic: Any, code: int) -> Building[Row]:
        rows = yield from rows_of(
            topic.partitions if hasattr(topic, "partitions") else topic.partition_indexes,
            lambda each: partition_row(
                partition_index=getattr(each, "partition_index", each), error_code=code, **fields
            ),
        )
        return topic_row(name=topic.name, partitions=rows)

    return row


@dataclass(frozen=True, kw_only=True)
class ByItem(Generic[Item, Req, Resp]):
    """The guard of a request whose items are resources."""

    operation: AclOperation
    kind: ResourceType = ResourceType.TOPIC
    items: str = "topics"
    """The field of the request that has the list of items."""
    name: Callable[[Item], str] = attrgetter("name")
    """Returns the name of the resource that an item is about."""
    rows: str = "topics"
    """The field of the answer that has the list of rows."""
    row: Callable[[Item, int], Building[Any]]
    """Builds the row of a refused item."""
    answer_class: Callable[..., Resp]

    def __call__(self, asked: Asked[Req, Resp]) -> Steps:
        client, call, request, handler = asked
        client.grant(each=self.operation)
        items: Sequence[Item] = getattr(request, self.items) or ()
        names = [self.name(item) for item in items]
        refused = yield from client.refused(self.operation, self.kind, names)
        if not refused:
            yield from passed(handler, call, request)
            return
        code = int(REFUSALS[self.kind])
        kept, rows = [], []
        for item in items:
            if self.name(item) in refused:
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


def with_rows(field_name: str, rows: Sequence[Row]) -> Amend[Resp]:
    """Make the amendment that adds rows to a list of the answer."""

    def amend(answer: Resp) -> Building[Resp]:
        yield from ()
        present = getattr(answer, field_name) or ()
        setattr(answer, field_name, [*present, *rows])
        return answer

    return amend


def only(field_name: str, is_shown: Callable[[Any], bool]) -> Amend[Resp]:
    """Make the amendment that leaves rows out of a list of the answer."""

    def amend(answer: Resp) -> Building[Resp]:
        shown = []
        for row in getattr(answer, field_name) or ():
            if is_shown(row):
                shown.append(row)
            yield None
        setattr(answer, field_name, shown)
        return answer

    return amend
