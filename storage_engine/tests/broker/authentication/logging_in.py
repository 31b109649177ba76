"""A server with a gate, and raw clients that log in."""

import contextlib
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from storage_engine.broker.authentication.sasl_gate import SaslGate
from storage_engine.broker.authentication.sasl_log_in import LogInLimits
from storage_engine.core.security.sasl_server import OfferedMechanism, PlainServer
from storage_engine.net.connection import Connection
from storage_engine.net.event_loop_ports import LoopScheduler, SystemClock
from storage_engine.net.limits import ServerLimits
from storage_engine.net.server import Server
from storage_engine.net.serving import ServedListener
from storage_engine.protocol.framing import encode_request_frame, parse_response
from storage_engine.protocol.messages import sasl_authenticate, sasl_handshake
from storage_engine.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from storage_engine.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from storage_engine.tests.net.serving import Client, LoopThread, framed, running_loop

ALICE = b"\0alice\0hunter2"
REQUEST_MAX_BYTES = 1 << 20
NO_REQUEST = b"\x4e\x20\x00\x00 what serves requests echoes it"


def plain(max_reauth_ms: int = 0) -> OfferedMechanism:
    def is_alices(user: str, password: str) -> bool:
        return (user, password) == ("alice", "hunter2")

    return OfferedMechanism(make=lambda: PlainServer(is_alices), max_reauth_ms=max_reauth_ms)


class GatedServer:
    """Echoes the frames of those who have logged in; the handshake is passed to the gate."""

    def __init__(self, thread: LoopThread, gate: SaslGate) -> None:
        self.thread = thread
        self.gate = gate
        self.principals: list[str] = []
        self.port = 0
        self.brokers_port = 0
        """That of a second listener."""

    def handle(self, connection: Connection, frame: memoryview) -> None:
        self.principals.append(str(connection.principal))
        if frame[:2] == struct.pack(">h", sasl_handshake.API.key):
            # As the dispatcher does.
            log_in = self.gate._log_ins[connection]
            log_in._take(frame)
            return
        connection.begin().respond([framed(bytes(frame))])


@contextlib.contextmanager
def gated_server(
    *,
    offered: Mapping[str, OfferedMechanism] | None = None,
    is_open: bool = True,
    **limits: Any,
) -> Iterator[GatedServer]:
    with running_loop("uvloop") as thread:
        gate = SaslGate(
            dict.fromkeys(("S", "BROKERS"), offered or {"PLAIN": plain()}),
            scheduler=LoopScheduler(thread.loop),
            clock=SystemClock(),
            limits=LogInLimits(**{"failed_delay_ms": 1, **limits}),
        )
        made = GatedServer(thread, gate)
        listeners = [
            ServedListener(name=name, host="127.0.0.1", handle=made.handle, on_opened=gate.opened)
            for name in ("S", "BROKERS")
        ]
        server = Server(thread.loop, listeners, ServerLimits(request_max_bytes=REQUEST_MAX_BYTES))
        thread.run(server.start())
        made.port, made.brokers_port = server.ports["S"], server.ports["BROKERS"]
        if is_open:
            thread.call(gate.open)
        try:
            yield made
        finally:
            thread.run(server.close(grace_ms=100))


class LogInClient(Client):
    """Speaks SaslHandshake and SaslAuthenticate."""

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
        self.send_handshake(mechanism, version)
        return parse_response(sasl_handshake.API, version, memoryview(self.receive()))

    def send_handshake(self, mechanism: str = "PLAIN", version: int = 1) -> None:
        request = SaslHandshakeRequest(mechanism=mechanism)
        self.socket.sendall(_joined(sasl_handshake.API, version, request))

    def authenticate(self, token: bytes = ALICE, version: int = 2) -> SaslAuthenticateResponse:
        self.send_token(token, version)
        return parse_response(sasl_authenticate.API, version, memoryview(self.receive()))

    def send_token(self, token: bytes = ALICE, version: int = 2) -> None:
        request = SaslAuthenticateRequest(auth_bytes=token)
        self.socket.sendall(_joined(sasl_authenticate.API, version, request))

    def log_in(self) -> SaslAuthenticateResponse:
        assert self.handshake().error_code == 0
        return self.authenticate()

    def is_served(self) -> bool:
        self.send(NO_REQUEST)
        return self.receive() == NO_REQUEST


def _joined(spec: Any, version: int, request: object) -> bytes:
    return b"".join(bytes(piece) for piece in encode_request_frame(spec, version, 7, "c", request))
