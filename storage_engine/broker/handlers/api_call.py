"""A request that a handler is to answer, and the table of handlers."""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from storage_engine.broker.quotas.client_usage import CallQuota
from storage_engine.broker.requests.long_work import LongWork, Steps
from storage_engine.broker.shared_threads import share_of
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.fair_queue import Share
from storage_engine.core.metrics import RequestFigures
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.net.connection import Connection
from storage_engine.net.frames import Exchange
from storage_engine.protocol.apis.registry import APIS, spec_for
from storage_engine.protocol.apis.spec import AnyApi, ApiSpec, Buffer, Req, Resp
from storage_engine.protocol.framing import encode_response_frame

Amend = Callable[[Resp], Generator[None, None, Resp]]
"""Changes an answer, in steps."""


Given = ParamSpec("Given")
Made = TypeVar("Made")


class CallRights(Protocol):
    """What a request was granted when it was taken up."""

    def refusal(self, kind: ResourceType | None = None, name: str = "") -> ErrorCode:
        """NONE while it is so, as to the request as a whole and to the resource."""
        ...

    def refused(self, kind: ResourceType, names: Collection[str]) -> Collection[str] | None:
        """Those of the resources that it has lost the right to; None where there are too many to
        ask about in one go."""
        ...


class ApiCall(Generic[Resp]):
    """A request of a connection. It is answered exactly once."""

    __slots__ = (
        "amend",
        "begun_ns",
        "client_id",
        "connection",
        "correlation_id",
        "exchange",
        "figures",
        "is_long",
        "quota",
        "rights",
        "shared_as",
        "spec",
        "version",
        "weight",
        "work",
    )

    def __init__(
        self,
        spec: ApiSpec[Any, Resp],
        version: int,
        correlation_id: int,
        connection: Connection,
        exchange: Exchange,
        client_id: str = "",
        work: LongWork | None = None,
    ) -> None:
        self.client_id = client_id
        self.work = work
        self.figures: RequestFigures | None = None
        """Where the time of this one is noted, by those who have set the next two, too."""
        self.begun_ns: int
        self.weight: int
        """It is timed for so many."""
        self.is_long = False
        self.shared_as: str | None = None
        """With whom it takes its turn, if not with its principal."""
        self.quota: CallQuota | None = None
        """Of a client that has one."""
        self.spec = spec
        self.version = version
        self.correlation_id = correlation_id
        self.connection = connection
        self.exchange = exchange
        self.amend: Amend[Resp] | None = None
        """What is done to the answer before it is sent, by those who changed the request."""
        self.rights: CallRights | None = None
        """Set where somebody decides on them."""

    def time(self, figures: RequestFigures) -> None:
        """From now to its answer."""
        self.figures, self.weight = figures, figures.weight
        self.begun_ns = figures.now_ns()

    def respond(self, message: Resp) -> None:
        """Answer; to be called once. A thread encodes an answer that may be long."""
        if self.amend is not None:
            amend, self.amend = self.amend, None
            self.run(self._amended(amend, message))
            return
        if self.quota is not None:
            message = self.quota.answered(message)
        if self.figures is not None:
            self.figures.answered(self.begun_ns, self.weight)
        if self.is_long and self.work is not None:
            self.hold()
            self.work.beside(
                self.share, lambda: self._encoded(message), self._on_encoded, more=_bytes_of
            )
        else:
            self.exchange.respond(self._encoded(message))

    def _amended(self, amend: "Amend[Resp]", message: Resp) -> Steps:
        message = yield from amend(message)
        self.respond(message)

    def run(self, steps: Steps, begun_ns: int | None = None) -> None:
        """Do work that may be long, of a handler or of a callback of its own. `begun_ns`: as of
        `LongWork.run`."""
        assert self.work is not None
        self.work.run(self, steps, begun_ns)

    # What was granted may be taken away while a request waits: who acts after a wait asks again.

    def refusal(self, kind: ResourceType | None = None, name: str = "") -> ErrorCode:
        """Why the client may not have this done any more; NONE while it may."""
        return ErrorCode.NONE if self.rights is None else self.rights.refusal(kind, name)

    def check_allowed(self, kind: ResourceType | None = None, name: str = "") -> None:
        """Raises KafkaError where the client may not have this done any more."""
        if self.rights is not None:
            code = self.rights.refusal(kind, name)
            if code is not ErrorCode.NONE:
                raise KafkaError(code.meaning, code)

    def refused(self, kind: ResourceType, names: Collection[str]) -> Collection[str] | None:
        """See `CallRights`."""
        return () if self.rights is None else self.rights.refused(kind, names)

    def while_allowed(
        self,
        made: Callable[Given, Made],
        kind: ResourceType | None = None,
        name: str = "",
    ) -> Callable[Given, Made | ErrorCode]:
        """What makes an event, or says why there may be none any more."""
        rights = self.rights
        if rights is None:
            return made

        def checked(*args: Given.args, **kwargs: Given.kwargs) -> Made | ErrorCode:
            code = rights.refusal(kind, name)
            return made(*args, **kwargs) if code is ErrorCode.NONE else code

        return checked

    def mutate(self, partitions: int) -> None:
        """Partitions are to be created or deleted. KafkaError where a quota does not allow it."""
        if self.quota is not None:
            self.quota.mutate(partitions)

    def _encoded(self, message: Resp) -> list[Buffer]:
        return encode_response_frame(self.spec, self.version, self.correlation_id, message)

    def _on_encoded(self, buffers: list[Buffer] | None, error: Exception | None) -> None:
        if buffers is not None:
            self.exchange.respond(buffers)
        elif error is not None:
            self.failed(error)
        self.release()

    # What LongWork asks for.

    def hold(self) -> None:
        """Takes no further request of the connection."""
        self.connection.hold()

    def release(self) -> None:
        """Takes the next request of the connection."""
        self.connection.release()

    def failed(self, error: Exception) -> None:
        """Log the error and close the connection: the client learns that there is no answer."""
        self.connection.request_failed(error)

    @property
    def is_gone(self) -> bool:
        return self.exchange.closed

    @property
    def share(self) -> Share:
        """Whose turn it uses where many wait."""
        return share_of(self.connection, self.shared_as)

    @property
    def owner(self) -> Share:
        """To whom belongs what it makes: its principal, with the address."""
        return self.connection.principal, self.connection.peer_host


def _bytes_of(buffers: list[Buffer]) -> int:
    return sum(map(len, buffers))


Handler = Callable[[ApiCall[Resp], Req], Steps | None]
"""A handler whose lists may be long is a generator: where it yields, others get their turn."""


AnyCall = ApiCall[Any]
AnyHandler = Handler[Any, Any]
AnyRefusal = Callable[[int], Any]


class ServedApi(NamedTuple):
    """An API with its handler; `HandlerTable.add` sees to it that they fit."""

    spec: AnyApi
    handler: AnyHandler
    figures: RequestFigures | None = None
    """Where the dispatcher counts requests; None: it does not."""
    refusal: AnyRefusal | None = None
    """Makes the answer, from its error code, for whoever may not act as a broker; None: the API is
    not for brokers alone, or everybody may."""


_KEYS = {entry.name: key for key, entry in APIS.items()}


class HandlerTable:
    """The APIs that a broker serves, by their keys."""

    def __init__(self) -> None:
        self._served: dict[int, ServedApi] = {}

    def add(self, spec: ApiSpec[Req, Resp], handler: Handler[Resp, Req]) -> None:
        """Registers a handler for an API. Each API is registered once."""
        assert spec.key not in self._served, f"{spec.name} has two handlers"
        self._served[spec.key] = ServedApi(spec, handler)

    def serve(self, **handlers: AnyHandler) -> None:
        """Registers handlers by the names of their APIs."""
        for name, handler in handlers.items():
            self.add(spec_for(_KEYS[name]), handler)

    def get(self, key: int) -> ServedApi | None:
        return self._served.get(key)

    def __iter__(self) -> Iterator[int]:
        return iter(self._served)

    def wrap(self, wrapped: Callable[[AnyApi, AnyHandler], AnyHandler]) -> None:
        """Puts something before each handler."""
        self._served = {
            key: each._replace(handler=wrapped(each.spec, each.handler))
            for key, each in self._served.items()
        }

    def reserve(self, refusals: Mapping[int, AnyRefusal]) -> None:
        """These APIs are for brokers alone; everybody else gets the refusals."""
        self._served = {
            key: each._replace(refusal=refusals.get(key)) for key, each in self._served.items()
        }

    def count(self, figures_of: Callable[[AnyApi], RequestFigures | None]) -> None:
        """Has the dispatcher count the requests of each API there."""
        self._served = {
            key: each._replace(figures=figures_of(each.spec)) for key, each in self._served.items()
        }
