"""A network in simulated time: requests go as bytes through the receiver's own dispatcher.

Fault model. Within one connection order is kept, both ways. A connection may be
- cut: what is under way is lost both ways, and both ends know at once;
- given up by its sender (timeout, disconnect, `give_up`): what was sent before still arrives, late,
  perhaps after what the sender sends anew on the next connection; the answers go nowhere;
- held up one way or both ways by a partition: nothing is lost, everything waits, in order, until
  the partition ends or the sender gives up (TCP sends again until then).
A dead broker's connections break; what was asked of an earlier life is never answered by the next.
A stopped broker takes what arrives when it runs again.

Not modelled: corrupt bytes (the CRC of a batch and TCP's own see to those), part of a frame.
"""

import itertools
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from simulation.world.clock import ProcessLoop, ScheduledCall, SimulatedLoop
from storage_engine.core.control.cluster_state import ONLY_LISTENER
from storage_engine.core.ports import Endpoint, PortAnswer, TransportError
from storage_engine.core.security.principal import ANONYMOUS, Principal
from storage_engine.net.frames import Buffer, Piece, ResponseBuffers
from storage_engine.protocol.apis.spec import AnyApi, ApiSpec, Req, Resp
from storage_engine.protocol.framing import (
    encode_request_frame,
    parse_response,
    read_correlation_id,
)

NETWORK_DELAY_MS = 1
BASE_PORT = 9000
"""Broker n listens on this plus n."""
SIZE_BYTES = 4

CLIENT = 0
"""The number of a sender that is no broker."""

OnReply = Callable[[Resp | TransportError], None]
"""Gets the response, or a TransportError."""


def endpoint_of(broker: int) -> Endpoint:
    return Endpoint(broker_id=broker, host="simulated", port=BASE_PORT + broker)


class Host(Protocol):
    """A broker as the network sees it."""

    up: bool
    loop: ProcessLoop

    @property
    def serving(self) -> bool:
        """Whether it listens."""
        ...

    def receive(self, connection: "SimulatedConnection", frame: memoryview) -> None:
        """Handle a request in the present life of the broker."""
        ...


class SimulatedExchange:
    """A request that waits for its response; stands in for net.connection.Exchange."""

    __slots__ = ("_connection", "frame")

    def __init__(self, connection: "SimulatedConnection") -> None:
        self._connection = connection
        self.frame: bytes | None = None

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def respond(self, buffers: ResponseBuffers) -> None:
        assert self.frame is None, "a request was answered twice"
        self.frame = b"".join([p if isinstance(p, bytes) else bytes(_view(p)) for p in buffers])
        self._connection.answered()

    def skip(self) -> None:
        self.respond([])


def _view(piece: Piece) -> Buffer:
    return piece.view() if hasattr(piece, "view") else piece


class _Request(NamedTuple):
    """A request that its sender waits for."""

    correlation_id: int
    spec: AnyApi
    version: int
    on_reply: OnReply[Any]
    timer: ScheduledCall


class _Pipe:
    """One direction of a connection: messages arrive later, in the same order.

    Invariant: for each message in `_queue` there is one arrival, scheduled or held up.
    """

    __slots__ = ("_due_ms", "_held_up", "_network", "_queue", "direction")

    def __init__(self, network: "SimulatedNetwork", direction: tuple[int, int]) -> None:
        self._network = network
        self.direction = direction
        self._due_ms = 0
        self._queue: deque[Callable[[], None]] = deque()
        self._held_up = 0
        """The number of arrivals that wait for the end of a partition."""

    @property
    def is_open(self) -> bool:
        network = self._network
        return self.direction not in network.held_up and network.dark.isdisjoint(self.direction)

    def hold_until(self, due_ms: int) -> None:
        """Have what is sent from now on arrive no sooner."""
        self._due_ms = max(self._due_ms, due_ms)

    def put(self, arrive: Callable[[], None]) -> None:
        self._queue.append(arrive)
        self._schedule()

    def _schedule(self) -> None:
        network = self._network
        now_ms = network.loop.now_ms
        self._due_ms = max(self._due_ms, now_ms + network.delay_ms())
        network.loop.call_later(self._due_ms - now_ms, self._arrive)

    def _arrive(self) -> None:
        if self.is_open:
            self._queue.popleft()()
            return
        if not self._held_up:
            self._network.waiting.append(self)
        self._held_up += 1

    def go_on(self) -> None:
        """Resume after a partition: what was held up is sent again when the sender gets to it."""
        held_up, self._held_up = self._held_up, 0
        self._due_ms = max(self._due_ms, self._network.loop.now_ms + self._network.resend_ms())
        for _ in range(held_up):
            self._schedule()


class SimulatedConnection:
    """One connection from a broker or client to a broker; the receiver's handlers get it in place
    of a net.connection.Connection."""

    def __init__(
        self,
        network: "SimulatedNetwork",
        sender: int,
        owner: ProcessLoop | None,
        receiver: int,
        channel: str = "",
    ) -> None:
        self._network = network
        self.number = next(network.connection_numbers)
        self.channel = channel
        self.sender = sender
        self.receiver = receiver
        self._owner = owner
        self._to = _Pipe(network, (sender, receiver))
        self._back = _Pipe(network, (receiver, sender))
        self._in_flight: deque[_Request] = deque()
        self._exchanges: deque[SimulatedExchange] = deque()
        self._holds = 0
        self._held_frames: deque[Callable[[], None]] = deque()
        """The frames that came while the receiver worked on a request that must end before the next
        one begins."""
        self._receiver_loop: ProcessLoop | None = None
        """The receiver's life that the connection belongs to, from its first frame on."""
        self.peer_host = f"simulated-{sender}"
        self.listener_name = ONLY_LISTENER
        self.principal = network.principals.get(sender, ANONYMOUS)
        self.is_open = True
        """True while the sender uses it."""
        self.closed = False
        """True when no answer of the receiver arrives any more."""
        network.connections.append(self)

    def send(
        self,
        spec: ApiSpec[Req, Resp],
        version: int,
        message: Req,
        *,
        timeout_ms: int,
        on_reply: OnReply[Resp] | None,
    ) -> None:
        """`on_reply` is None for a request that is never answered (acks=0)."""
        network = self._network
        correlation_id = next(network.correlation_ids)
        buffers = encode_request_frame(spec, version, correlation_id, "simulation", message)
        frame = memoryview(bytearray().join([bytes(_view(p)) for p in buffers]))[SIZE_BYTES:]
        if on_reply is not None:
            timer = network.loop.call_later(
                timeout_ms, lambda: self.give_up(f"no answer within {timeout_ms} ms"), self._owner
            )
            self._in_flight.append(_Request(correlation_id, spec, version, on_reply, timer))
        late_ms = network.late_ms.get((self.sender, self.channel))
        if late_ms is not None:
            self._to.hold_until(late_ms)
        self._to.put(lambda: self._arrive(frame))

    def give_up(self, reason: str) -> None:
        """Drop the connection on the sender's side; what it has sent may still arrive."""
        if not self.is_open:
            return
        self.is_open = False
        if self.sender != CLIENT:
            self._network.given_up_ms = self._network.loop.now_ms
        self._to.put(self._end)
        self._fail_all(reason)

    def cut(self, reason: str) -> None:
        """Break the connection: both sides know, and what is under way is lost."""
        self._end()
        if self.is_open:
            self.is_open = False
            self._network.loop.call_later(
                self._network.delay_ms(), lambda: self._notify_sender(reason)
            )

    def _notify_sender(self, reason: str) -> None:
        if self._owner is None:
            self._fail_all(reason)
            return
        self._owner.enter(lambda: self._fail_all(reason))
        listener = self._network.on_closed.get(self.sender)
        if listener is not None and self._receiver_loop is not None:
            # One that was never made has not ended.
            self._owner.enter(lambda: listener(self.receiver))

    def _fail_all(self, reason: str) -> None:
        requests, self._in_flight = self._in_flight, deque()
        for request in requests:
            request.timer.cancel()
        for request in requests:
            request.on_reply(TransportError(reason=reason))

    def _response(self, frame: memoryview) -> None:
        if not self.is_open or not self._in_flight:
            return
        request = self._in_flight.popleft()
        assert read_correlation_id(frame) == request.correlation_id, "responses out of order"
        request.timer.cancel()
        request.on_reply(parse_response(request.spec, request.version, frame))

    def _arrive(self, frame: memoryview) -> None:
        if self.closed:
            return
        host = self._network.brokers.get(self.receiver)
        cut = frozenset((self.sender, self.receiver)) in self._network.cuts
        if self._receiver_loop is None and host is not None and host.up and not cut:
            self._receiver_loop = host.loop
        if cut or host is None or not host.up or host.loop is not self._receiver_loop:
            self.cut(f"broker {self.receiver} does not answer")
            return
        receiver = host

        def receive() -> None:
            if self._holds:
                self._held_frames.append(receive)
            elif not self.closed:
                receiver.receive(self, frame)

        receiver.loop.enter(receive)

    def hold(self) -> None:
        """Do the same as `net.connection.Connection`."""
        self._holds += 1

    def release(self) -> None:
        """Do the same as `net.connection.Connection`."""
        self._holds -= 1
        while self._held_frames and not self._holds:
            self._held_frames.popleft()()

    def request_failed(self, error: Exception) -> None:
        """Raise the error: it ends the simulation's run, as any error of a broker does."""
        raise error

    def begin(self) -> SimulatedExchange:
        exchange = SimulatedExchange(self)
        self._exchanges.append(exchange)
        return exchange

    def answered(self) -> None:
        """Send the answers at the head of the order."""
        exchanges = self._exchanges
        while exchanges and exchanges[0].frame is not None:
            data = exchanges.popleft().frame
            if data and not self.closed:
                frame = memoryview(bytearray(data))[SIZE_BYTES:]
                self._back.put(partial(self._deliver, frame))

    def _deliver(self, frame: memoryview) -> None:
        if not self.is_open:
            return
        if self._owner is None:
            self._response(frame)
        else:
            self._owner.enter(lambda: self._response(frame))

    def close(self, reason: str) -> None:
        """Close the connection on the receiver's side."""
        self.cut(reason)

    def _end(self) -> None:
        """End the receiver's side."""
        self.closed = True
        self._exchanges.clear()
        if self in self._network.connections:
            self._network.connections.remove(self)


class SimulatedNetwork:
    """All connections."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.brokers: dict[int, Host] = {}
        self.connections: list[SimulatedConnection] = []
        self.cuts: set[frozenset[int]] = set()
        """The pairs that can't connect."""
        self.held_up: set[tuple[int, int]] = set()
        """The directions (from, to) in which nothing gets through for now."""
        self.dark: set[int] = set()
        """The brokers on dark machines: who is connected to them hears nothing."""
        self.late_ms: dict[tuple[int, str], int] = {}
        """The earliest arrival of what is sent, by (sender, channel)."""
        self.on_closed: dict[int, Callable[[int], None]] = {}
        """By broker, the callback that gets the other broker when a connection to it ends."""
        self.refused: set[frozenset[int]] = set()
        """The pairs whose connections something between them refuses."""
        self.cuts_refuse = False
        """Whether what prevents connections answers in the name of the other's kernel."""
        self.principals: dict[int, Principal] = {}
        """The senders' principals on the connections that they open; others are anonymous."""
        self.given_up_ms = -1
        """The time when a broker last gave a connection up: its requests may arrive late."""
        self.waiting: list[_Pipe] = []
        self.delay_ms: Callable[[], int] = lambda: NETWORK_DELAY_MS
        self.resend_ms: Callable[[], int] = lambda: 0
        """The delay after a partition until a connection sends again what was lost."""
        self.correlation_ids = itertools.count(1)
        self.connection_numbers = itertools.count()

    def cut(self, one: int, other: int) -> None:
        """Break all connections between two, and prevent new ones until `heal`."""
        self.cuts.add(frozenset((one, other)))
        self.reset(one, other)

    def reset(self, one: int, other: int) -> None:
        """Break all connections between two."""
        for connection in list(self.connections):
            if {connection.sender, connection.receiver} == {one, other}:
                connection.cut("the connection was lost")

    def give_up(self, sender: int, receiver: int) -> None:
        """Give up the sender's connections; what it has sent may still arrive."""
        for connection in list(self.connections):
            if (connection.sender, connection.receiver) == (sender, receiver):
                connection.give_up("the connection was lost")

    def give_up_channel(self, sender: int, channel: str) -> None:
        """Give up connections as `give_up` does, those of one kind, to all receivers."""
        for connection in list(self.connections):
            if (connection.sender, connection.channel) == (sender, channel):
                connection.give_up("the connection was lost")

    def hold_up(self, sender: int, receiver: int) -> None:
        """Let nothing through in this direction, until `heal`."""
        self.held_up.add((sender, receiver))

    def isolate(self, broker: int) -> None:
        for other in self.brokers:
            if other != broker:
                self.cut(broker, other)

    def heal(self) -> None:
        """End all cuts and partitions."""
        self.cuts.clear()
        self.refused.clear()
        self.held_up.clear()
        self.late_ms.clear()
        for broker in sorted(self.dark):
            self.light(broker)
        self.release()

    def release(self) -> None:
        """Resume all connections that no partition holds up any more."""
        waiting, self.waiting = self.waiting, []
        for pipe in waiting:
            if pipe.is_open:
                pipe.go_on()
            else:
                self.waiting.append(pipe)

    def gone(self, broker: int) -> None:
        """Break the connections of a process that has ended."""
        for connection in list(self.connections):
            if broker not in self.dark:
                if broker in (connection.sender, connection.receiver):
                    connection.cut(f"broker {broker} is gone")
            elif broker == connection.sender:
                connection.cut(f"the machine of broker {broker} is dark")

    def light(self, broker: int) -> None:
        """End the darkness of a broker's machine, whose kernel knows no connection any more."""
        self.dark.discard(broker)
        for connection in list(self.connections):
            if connection.receiver == broker:
                connection.cut(f"the machine of broker {broker} was dark")

    def answer_of(self, sender: int, receiver: int) -> PortAnswer:
        """Return the receiver's answer to an attempt to connect."""
        if receiver in self.dark or {(sender, receiver), (receiver, sender)} & self.held_up:
            return PortAnswer.SILENT
        pair = frozenset((sender, receiver))
        if pair in self.refused:
            return PortAnswer.REFUSED
        if pair in self.cuts:
            return PortAnswer.REFUSED if self.cuts_refuse else PortAnswer.SILENT
        host = self.brokers.get(receiver)
        is_there = host is not None and host.serving
        return PortAnswer.ACCEPTED if is_there else PortAnswer.REFUSED

    def send(
        self,
        sender: int,
        receiver: int,
        spec: ApiSpec[Req, Resp],
        version: int,
        message: Req,
        *,
        timeout_ms: int,
        on_reply: OnReply[Resp],
    ) -> SimulatedConnection:
        """One request on a connection of its own."""
        connection = SimulatedConnection(self, sender, None, receiver)

        def last(reply: Resp | TransportError) -> None:
            connection.give_up("it has served")
            on_reply(reply)

        connection.send(spec, version, message, timeout_ms=timeout_ms, on_reply=last)
        return connection


class SimulatedTransport:
    """One broker's or client's Transport."""

    def __init__(
        self, network: SimulatedNetwork, sender: int, owner: ProcessLoop | None = None
    ) -> None:
        self._network = network
        self._sender = sender
        self._owner = owner
        self._channels: dict[tuple[int, str], SimulatedConnection] = {}

    def request(
        self,
        endpoint: Endpoint,
        channel: str,
        spec: ApiSpec[Req, Resp],
        version: int,
        message: Req,
        *,
        timeout_ms: int,
        on_reply: OnReply[Resp] | None,
    ) -> None:
        """Send a request as core.ports.Transport does; `on_reply` None asks for no answer."""
        receiver = endpoint.port - BASE_PORT
        key = receiver, channel
        connection = self._channels.get(key)
        if connection is None or not connection.is_open:
            connection = SimulatedConnection(
                self._network, self._sender, self._owner, receiver, channel
            )
            self._channels[key] = connection
        connection.send(spec, version, message, timeout_ms=timeout_ms, on_reply=on_reply)

    def disconnect(self, endpoint: Endpoint, channel: str) -> None:
        connection = self._channels.pop((endpoint.port - BASE_PORT, channel), None)
        if connection is not None:
            connection.give_up("disconnected")

    def close(self) -> None:
        for connection in list(self._channels.values()):
            connection.give_up("the sender ends")
        self._channels.clear()
