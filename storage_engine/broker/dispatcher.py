"""Takes every request from its frame to its answer.

    decode   the header, then the body: in this turn, or by a thread where the body is long
    admit    requests of clients count for quotas; requests of brokers do not
    handle   the guard checks the rights (`guards`), then the handler runs: a function, or a
             generator of steps (`requests/long_work`)
    answer   `ApiCall.respond`: quotas, figures, encoding

A frame that can't be decoded, or an API or version that is not served, closes its connection and
affects no other; an ApiVersions of an unknown version has an answer of its own (KIP-511).

Whether a client may send a request for brokers is checked before the request is decoded: what a
request says of itself gives it no precedence, no larger limit and no exemption from quotas.
Without an authorizer each client may act as a broker, as in Kafka, but takes turns with the others.
Source: R-NET1, R-NET3.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from storage_engine.broker.handlers.api_call import (
    AnyCall,
    AnyHandler,
    AnyRefusal,
    ApiCall,
    HandlerTable,
    ServedApi,
)
from storage_engine.broker.handlers.api_versions import ApiVersionsHandler
from storage_engine.broker.quotas.client_usage import RequestQuotas
from storage_engine.broker.requests.long_work import (
    INLINE_BYTES,
    INLINE_ITEMS,
    REQUEST_ITEMS_MAX,
    LongWork,
    Steps,
)
from storage_engine.core.errors import ErrorCode, InvalidRequestError
from storage_engine.core.fair_queue import FIRST
from storage_engine.core.features import FIRST_FEATURES, FinalizedFeatures
from storage_engine.core.metrics import RequestFigures
from storage_engine.net.connection import Connection
from storage_engine.net.limits import SCRATCH_BYTES
from storage_engine.protocol.apis import api_versions
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FIRST_WITHOUT_REPLICA_ID, FetchRequest
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.registry import (
    INTERNAL_RANGES,
    OWN_RANGES,
    SERVED_RANGES,
    name_of,
)
from storage_engine.protocol.apis.spec import (
    MAX_ITEMS,
    AnyApi,
    LongMessageError,
    Req,
    VersionRange,
)
from storage_engine.protocol.framing import RequestHeader, parse_request_header


class BrokerRights(Protocol):
    """Knows which connections may act as brokers."""

    def may_act_as_broker(self, connection: Connection, request: str) -> bool:
        """Whether the connection's principal may act as a broker; a refusal is logged."""
        ...

    def is_granted_to_act_as_broker(self, connection: Connection) -> bool:
        """Whether it is granted explicitly, by a rule or to a super user."""
        ...


_SAYS_IT_IS_A_BROKER = "clients that say that they are brokers"
"""The share of brokers' requests where the right is not granted explicitly."""


class Dispatcher:
    """The `handle` of a broker's server."""

    def __init__(
        self,
        table: HandlerTable,
        long_work: LongWork,
        quotas: RequestQuotas,
        rights: BrokerRights | None = None,
        finalized: Callable[[], FinalizedFeatures] = lambda: FIRST_FEATURES,
    ) -> None:
        """`table`: the APIs to serve; ApiVersions is added. `rights`: None where everybody may act
        as a broker. `finalized`: the levels of features that the cluster uses."""
        self._versions = ApiVersionsHandler(table, finalized)
        table.add(api_versions.API, self._versions.handle)
        assert set(table) <= set(SERVED_RANGES) | set(INTERNAL_RANGES) | set(OWN_RANGES)
        self._table = table
        self._long_work = long_work
        self._quotas = quotas
        self._rights = rights

    @property
    def advertised(self) -> Mapping[int, VersionRange]:
        """The APIs that ApiVersions names to clients, with their versions."""
        return self._versions.advertised

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        begun_ns = self._long_work.work_ns() if self._quotas.usage.bounds_requests else None
        try:
            header, body = parse_request_header(frame)
        except InvalidRequestError as failure:
            connection.close(str(failure))
            return
        served = self._table.get(header.api_key)
        if served is None:
            connection.close(f"{name_of(header.api_key)} is not served")
            return
        spec, version = served.spec, header.api_version
        if not spec.min_version <= version <= spec.max_version:
            self._answer_unknown_version(connection, spec, header.correlation_id)
            return
        refusal, request = served.refusal, None
        try:
            if refusal is None or self._may_act_as_broker(connection, spec):
                refusal = None
                if len(body) > INLINE_BYTES and spec is not PRODUCE:
                    raise LongMessageError
                request = spec.decode_request(version, body, INLINE_ITEMS)
        except InvalidRequestError as failure:
            connection.close(str(failure))
            return
        except LongMessageError:
            call = self._call(connection, spec, header, served.figures)
            if len(body) < SCRATCH_BYTES:
                # The frame's memory is reused for the next frame when this call ends.
                body = memoryview(bytearray(body))
            call.shared_as = self._shared_as(connection, spec, version, body)
            begin = partial(self._decode_first, call, served, body)
            self._long_work.run_later(call, begin, size=len(body))
            return
        call = self._call(connection, spec, header, served.figures)
        if begun_ns is not None:
            is_exempt = refusal is None and self._is_of_a_broker(call, request)
            request = self._admit(call, request, len(body), is_exempt=is_exempt)
        handler = served.handler if refusal is None else partial(_refuse, refusal)
        self._handle(call, handler, request, begun_ns)

    def _handle(
        self, call: AnyCall, handler: AnyHandler, request: Req, begun_ns: int | None
    ) -> None:
        """Have the handler answer: at once, or in steps where it is a generator."""
        steps = None
        try:
            steps = handler(call, request)
        except Exception as failure:  # noqa: BLE001 - logged with its trace where the connection is closed
            call.failed(failure)
        if steps is not None:
            self._long_work.run(call, steps, begun_ns)
        elif call.quota is not None and begun_ns is not None:
            call.quota.worked(self._long_work.work_ns() - begun_ns)

    def _decode_first(self, call: AnyCall, served: ServedApi, body: memoryview) -> Steps:
        """Decode a request with too many items for one turn beside the loop, then handle it."""
        most = MAX_ITEMS if call.spec.key in INTERNAL_RANGES else REQUEST_ITEMS_MAX
        try:
            request = yield partial(call.spec.decode_request, call.version, body, most)
        except InvalidRequestError as failure:
            call.connection.close(str(failure))
            return
        except LongMessageError:
            call.connection.close(
                f"a {call.spec.name} request has more than {most} items: send several"
            )
            return
        if self._quotas.usage.bounds_requests:
            request = self._admit(call, request, len(body), is_exempt=call.shared_as is not None)
        steps = served.handler(call, request)
        if steps is not None:
            yield from steps

    def _admit(
        self, call: AnyCall, request: Req, size: int, *, is_exempt: bool
    ) -> Req | FetchRequest:
        """The request within its client's quotas; None if it was not decoded."""
        if is_exempt:
            return request
        call.quota = self._quotas.of(call.connection, call.client_id, call.spec, call.version, size)
        if call.quota is not None and isinstance(request, FetchRequest):
            return call.quota.within(request)
        return request

    def _is_of_a_broker(self, call: AnyCall, request: object) -> bool:
        """Whether the request is exempt from quotas. The right to send an order was checked before
        decoding."""
        if call.spec.key in INTERNAL_RANGES:
            return True
        is_of_follower = isinstance(request, FetchRequest) and request.replica_id >= 0
        return is_of_follower and self._may_act_as_broker(call.connection, call.spec)

    def _may_act_as_broker(self, connection: Connection, spec: AnyApi) -> bool:
        return self._rights is None or self._rights.may_act_as_broker(connection, spec.name)

    def _shared_as(
        self, connection: Connection, spec: AnyApi, version: int, body: memoryview
    ) -> str | None:
        """The share of a broker's request; None for requests of clients."""
        if not _says_it_is_of_a_broker(spec, version, body):
            return None
        if not self._may_act_as_broker(connection, spec):
            return None
        if self._rights is None or not self._rights.is_granted_to_act_as_broker(connection):
            return _SAYS_IT_IS_A_BROKER
        return FIRST

    def _call(
        self,
        connection: Connection,
        spec: AnyApi,
        header: RequestHeader,
        figures: RequestFigures | None,
    ) -> AnyCall:
        version = header.api_version
        call: AnyCall = ApiCall(
            spec,
            version,
            header.correlation_id,
            connection,
            connection.begin(),
            header.client_id or "",
            self._long_work,
        )
        if figures is not None:
            # Here and not in a function: this is done for each request.
            counts = figures.counts
            counts[version] = number = counts[version] + 1
            if not number & figures.sample_mask:
                call.time(figures)
        return call

    def _answer_unknown_version(
        self, connection: Connection, spec: AnyApi, correlation_id: int
    ) -> None:
        call = ApiCall(spec, 0, correlation_id, connection, connection.begin())
        call.respond(api_versions.unsupported_version_response())


def _refuse(refusal: AnyRefusal, call: AnyCall, _request: Req) -> None:
    """Answer an undecoded request for brokers that another client has sent."""
    call.respond(refusal(int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))


def _says_it_is_of_a_broker(spec: AnyApi, version: int, body: memoryview) -> bool:
    """Whether it is an order of the controller, or a follower's fetch, which begins with the
    replica id: the cluster waits for them."""
    if spec.key in INTERNAL_RANGES:
        return True
    if spec is not FETCH or version >= FIRST_WITHOUT_REPLICA_ID:
        return False
    return int.from_bytes(body[:4], signed=True) >= 0
