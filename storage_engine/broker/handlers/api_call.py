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
    """The rights that a request was granted at its start."""

    def refusal(self, kind: ResourceType | None = None, name: str = "") -> ErrorCode:
        """NONE while it has the rights to the request as a whole and to the resource."""
        ...

    def refused(self, kind: ResourceType, names: Collection[str]) -> Collection[str] | None:
        """The resources that it has lost the right to; None where there are too many to check at
        once."""
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
        """Counts the duration of this request, with `begun_ns` and `weight`; None: not timed."""
        self.begun_ns: int
        self.weight: int
        """The number of requests that this one is counted for."""
        self.is_long = False
        self.shared_as: str | None = None
        """The share that the request belongs to in place of its principal's."""
        self.quota: CallQuota | None = None
        """The client's quota; None: unlimited."""
        self.spec = spec
        self.version = version
        self.correlation_id = correlation_id
        self.connection = connection
        self.exchange = exchange
        self.amend: Amend[Resp] | None = None
        """Changes the answer before it is sent, for a guard that has changed the request."""
        self.rights: CallRights | None = None
        """The granted rights; None without an authorizer."""

    def time(self, figures: RequestFigures) -> None:
        """Measure the time from now to the answer."""
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

    def run(self, steps: Steps) -> None:
        """Do work that may be long, of a handler or of a callback; nothing if the client is
        gone."""
        assert self.work is not None
        if self.is_gone:
            steps.close()
        else:
            self.work.run(self, steps)

    # Rights may be revoked while a request waits: what acts after a wait checks them again.

    def refusal(self, kind: ResourceType | None = None, name: str = "") -> ErrorCode:
        """The reason why the client has lost the right since the start; NONE: it has not."""
        return ErrorCode.NONE if self.rights is None else self.rights.refusal(kind, name)

    def check_allowed(self, kind: ResourceType | None = None, name: str = "") -> None:
        """Raises KafkaError where the client has lost the right since the start."""
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
        """Wrap a function that makes an event: it returns an ErrorCode once the right is lost."""
        rights = self.rights
        if rights is None:
            return made

        def checked(*args: Given.args, **kwargs: Given.kwargs) -> Made | ErrorCode:
            code = rights.refusal(kind, name)
            return made(*args, **kwargs) if code is ErrorCode.NONE else code

        return checked

    def mutate(self, partitions: int) -> None:
        """Count partitions to be created or deleted. Raises KafkaError where a quota forbids it."""
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

    # The interface for LongWork.

    def hold(self) -> None:
        """Read no further request of the connection."""
        self.connection.hold()

    def release(self) -> None:
        """Read the connection's requests again."""
        self.connection.release()

    def failed(self, error: Exception) -> None:
        """Log the error and close the connection, so that the client expects no answer."""
        self.connection.request_failed(error)

    @property
    def is_gone(self) -> bool:
        return self.exchange.closed

    @property
    def share(self) -> Share:
        """The share whose turn the request uses."""
        return share_of(self.connection, self.shared_as)

    @property
    def owner(self) -> Share:
        """The owner of the fetch sessions it opens: its principal and address."""
        return self.connection.principal, self.connection.peer_host


def _bytes_of(buffers: list[Buffer]) -> int:
    return sum(map(len, buffers))


Handler = Callable[[ApiCall[Resp], Req], Steps | None]
"""A handler whose lists may be long is a generator: other work gets its turn at each yield."""


AnyCall = ApiCall[Any]
AnyHandler = Handler[Any, Any]
AnyRefusal = Callable[[int], Any]


class ServedApi(NamedTuple):
    """An API with its handler; `HandlerTable.add` makes their types agree."""

    spec: AnyApi
    handler: AnyHandler
    figures: RequestFigures | None = None
    """The dispatcher counts the API's requests there; None: it does not."""
    refusal: AnyRefusal | None = None
    """Makes the answer, from an error code, for clients that may not act as brokers; None: the API
    is not for brokers alone, or all clients may."""


_KEYS = {entry.name: key for key, entry in APIS.items()}


class HandlerTable:
    """The APIs that a broker serves, by their keys."""

    def __init__(self) -> None:
        self._served: dict[int, ServedApi] = {}
        self.get = self._served.get
        """Return the API with a key; None where it is not served."""

    def add(self, spec: ApiSpec[Req, Resp], handler: Handler[Resp, Req]) -> None:
        """Add a handler for an API. Each API is added once."""
        assert spec.key not in self._served, f"{spec.name} has two handlers"
        self._served[spec.key] = ServedApi(spec, handler)

    def serve(self, **handlers: AnyHandler) -> None:
        """Add handlers by the names of their APIs."""
        for name, handler in handlers.items():
            self.add(spec_for(_KEYS[name]), handler)

    def __iter__(self) -> Iterator[int]:
        return iter(self._served)

    def wrap(self, wrapped: Callable[[AnyApi, AnyHandler], AnyHandler]) -> None:
        """Replace each handler by what `wrapped` makes of it."""
        self._served |= {
            key: each._replace(handler=wrapped(each.spec, each.handler))
            for key, each in self._served.items()
        }

    def reserve(self, refusals: Mapping[int, AnyRefusal]) -> None:
        """Make these APIs for brokers alone; other clients get the refusals."""
        self._served |= {
            key: each._replace(refusal=refusals.get(key)) for key, each in self._served.items()
        }

    def count(self, figures_of: Callable[[AnyApi], RequestFigures | None]) -> None:
        """Have the dispatcher count each API's requests in its figures."""
        self._served |= {
            key: each._replace(figures=figures_of(each.spec)) for key, each in self._served.items()
        }
