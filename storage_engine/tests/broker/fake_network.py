"""A network in simulated time: requests go as bytes through the receiver's own dispatcher.

Fault model: a link can be cut, which loses what is under way both ways; a dead broker answers
nothing; what was asked of an earlier life is never answered by the next.
"""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from storage_engine.core.ports import Endpoint, TransportError
from storage_engine.protocol.framing import encode_request_frame, parse_response
from storage_engine.tests.broker.fake_loop import FakeLoop

if TYPE_CHECKING:
    from storage_engine.tests.broker.fakes import FakeBroker

NETWORK_DELAY_MS = 1
BASE_PORT = 9000
"""Broker n listens on this plus n."""


class FakeExchange:
    """A request that waits for its response."""

    def __init__(self, connection: "FakeConnection", on_response: Callable[[Any], None]) -> None:
        self._connection = connection
        self._on_response = on_response
        self._answered = False

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def respond(self, buffers: Any) -> None:
        assert not self._answered, "a request was answered twice"
        self._answered = True
        if not self._connection.closed:
            frame = b"".join(p if isinstance(p, bytes) else bytes(_view(p)) for p in buffers)
            self._on_response(frame)

    def skip(self) -> None:
        self.respond([])


def _view(piece: Any) -> Any:
    return piece.view() if hasattr(piece, "view") else piece


class FakeConnection:
    """What a handler sees of its client; for one request."""

    def __init__(self, on_response: Callable[[Any], None]) -> None:
        self.closed = False
        self.closed_because: str | None = None
        self._on_response = on_response

    def begin(self) -> FakeExchange:
        return FakeExchange(self, self._on_response)

    def close(self, reason: str) -> None:
        self.closed = True
        self.closed_because = reason
        self._on_response(None)


class FakeNetwork:
    """Requests as bytes, through the receiver's own dispatcher."""

    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop
        self.brokers: dict[int, FakeBroker] = {}
        self.cuts: set[frozenset[int]] = set()
        self._correlation_ids = itertools.count(1)

    def cut(self, one: int, other: int) -> None:
        self.cuts.add(frozenset((one, other)))

    def isolate(self, broker: int) -> None:
        for other in self.brokers:
            if other != broker:
                self.cut(broker, other)

    def heal(self) -> None:
        self.cuts.clear()

    def send(
        self,
        sender: int,
        receiver: int,
        spec: Any,
        version: int,
        message: Any,
        *,
        timeout_ms: int,
        on_reply: Callable[[Any], None],
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        """Deliver after a moment; TransportError for a receiver that is dead or cut off."""
        buffers = encode_request_frame(spec, version, next(self._correlation_ids), "test", message)
        frame = bytearray(b"".join(bytes(_view(p)) for p in buffers))[4:]
        state = {"done": False}

        def reply(answer: Any) -> None:
            if not state["done"] and is_open():
                state["done"] = True
                on_reply(answer)

        def fail(reason: str) -> None:
            self.loop.call_later(NETWORK_DELAY_MS, lambda: reply(TransportError(reason=reason)))

        def arrive() -> None:
            broker = self.brokers.get(receiver)
            if not self._reaches(sender, receiver) or broker is None or not broker.up:
                fail(f"broker {receiver} does not answer")
                return
            life = broker.life

            def on_response(data: bytes | None) -> None:
                if not self._reaches(sender, receiver) or life != broker.life or not broker.up:
                    fail("the connection was lost")
                elif data is None:
                    fail("the connection was closed")
                elif data:
                    answer = parse_response(spec, version, memoryview(bytearray(data))[4:])
                    self.loop.call_later(NETWORK_DELAY_MS, lambda: reply(answer))

            connection = FakeConnection(on_response)
            broker.waiting.append((connection, fail))
            broker.parts.dispatcher(connection, memoryview(frame))  # type: ignore[arg-type]

        self.loop.call_later(timeout_ms, lambda: reply(TransportError(reason="timed out")))
        self.loop.call_later(NETWORK_DELAY_MS, arrive)

    def _reaches(self, one: int, other: int) -> bool:
        return frozenset((one, other)) not in self.cuts


class FakeTransport:
    """One broker's Transport."""

    def __init__(self, network: FakeNetwork, broker_id: int) -> None:
        self._network = network
        self._broker_id = broker_id
        self._closed = False

    def request(
        self,
        endpoint: Endpoint,
        channel: str,
        spec: Any,
        version: int,
        message: Any,
        *,
        timeout_ms: int,
        on_reply: Callable[[Any], None],
    ) -> None:
        self._network.send(
            self._broker_id,
            endpoint.port - BASE_PORT,
            spec,
            version,
            message,
            timeout_ms=timeout_ms,
            on_reply=on_reply,
            is_open=lambda: not self._closed,
        )

    def disconnect(self, endpoint: Endpoint, channel: str) -> None:
        """Nobody asks for the answers of a channel that he has dropped."""

    def close(self) -> None:
        self._closed = True
