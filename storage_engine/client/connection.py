"""A connection to one broker that speaks the Kafka protocol: versions agreed on, answers matched to
requests.

A request has the newest version that both sides know. Answers come in the order of the requests, so
the next answer belongs to the oldest request in flight. Source: KIP-35, KIP-511.
"""

import struct
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from storage_engine import __version__
from storage_engine.client.addresses import Address
from storage_engine.client.security.client_sockets import ClientSockets
from storage_engine.core.errors import (
    ErrorCode,
    HeadraceError,
    KafkaError,
    UnsupportedVersionError,
)
from storage_engine.net.blocking import BlockingConnection, ConnectionEndedError
from storage_engine.net.deadline import Deadline, monotonic_ms
from storage_engine.net.limits import BufferPool
from storage_engine.protocol.apis.api_versions import API as API_VERSIONS
from storage_engine.protocol.apis.api_versions import FIRST_ASKED, ApiVersionsRequest
from storage_engine.protocol.apis.spec import (
    AnyApi,
    ApiSpec,
    Req,
    Resp,
    VersionRange,
    newest_common_version,
)
from storage_engine.protocol.framing import (
    encode_request_frame,
    parse_response,
    read_correlation_id,
)

if TYPE_CHECKING:
    from storage_engine.client.security.client_security import ClientSasl

_SOFTWARE = "headrace"
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)


_PLAIN_SOCKETS = ClientSockets(None)


def versions_request() -> ApiVersionsRequest:
    """Return the request for the versions and features of a broker. Kafka's brokers refuse one that
    does not name the client's software."""
    return ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version=__version__)


class NotServedError(UnsupportedVersionError):
    """The broker does not know the request at all."""


class BrokerConnection:
    """A connection to a broker over one socket, `Readable` as that is. It closes itself after an
    error and is not used again."""

    __slots__ = (
        "_client_id",
        "_correlation_id",
        "_early",
        "_has_answered",
        "_in_flight",
        "_log_in_at_ms",
        "_sasl",
        "address",
        "name",
        "socket",
        "versions",
    )

    def __init__(
        self,
        sock: BlockingConnection,
        address: Address,
        client_id: str,
        sasl: "ClientSasl | None" = None,
    ) -> None:
        self.socket = sock
        self._sasl = sasl
        # Answers that were received while the one to a log-in was waited for.
        self._early: deque[memoryview] = deque()
        # Anything but the versions: a listener that asks for a log-in tells them to anybody.
        self._has_answered = False
        # The time at which the log-in is renewed, in monotonic ms; None: never.
        self._log_in_at_ms: int | None = None
        self.address = address
        self._client_id = client_id
        self._correlation_id = 0
        self._in_flight: deque[tuple[int, AnyApi, int]] = deque()
        self.name = sock.name
        self.versions: Mapping[int, VersionRange] = {}

    @classmethod
    def open(
        cls,
        address: Address,
        client_id: str,
        deadline: Deadline,
        pool: BufferPool,
        sockets: ClientSockets = _PLAIN_SOCKETS,
    ) -> "BrokerConnection":
        """Connect, ask what the broker speaks, and log in where `sockets` says so.
        AuthenticationError when either side is not accepted by the other."""
        sock = sockets.open(address, deadline, pool)
        connection = cls(sock, address, client_id, sockets.sasl)
        try:
            connection._agree_on_versions(deadline)
            connection._log_in(deadline)
        except HeadraceError:
            connection.close()
            raise
        return connection

    def _log_in(self, deadline: Deadline) -> None:
        if self._sasl is not None:
            from storage_engine.client.security.log_in import log_in

            self._log_in_at_ms = log_in(
                self.name,
                self._sasl,
                deadline,
                version_for=self.version_for,
                exchange=lambda api, request: self.exchange_now(api, request, deadline),
            )

    def _agree_on_versions(self, deadline: Deadline) -> None:
        request = versions_request()
        self.send(API_VERSIONS, request, deadline, version=FIRST_ASKED)
        frame = self.socket.receive(deadline)
        if bytes(frame[4:6]) == _UNSUPPORTED_VERSION:
            # What follows this error differs from server to server: ask as the oldest clients do.
            self._in_flight.clear()
            answer = self.exchange(API_VERSIONS, request, deadline, version=0)
            self._has_answered = False
        else:
            answer = self._decoded(frame)
        if answer.error_code:
            code = ErrorCode.of(answer.error_code)
            raise KafkaError(f"{self.name}: ApiVersions failed: {code.meaning}", code)
        self.versions = answer.ranges()

    def version_for(self, spec: AnyApi) -> int:
        """UnsupportedVersionError when there is none; NotServedError: for any client."""
        served = self.versions.get(spec.key)
        version = None if served is None else newest_common_version(spec, served)
        if version is None:
            offered = "not at all" if served is None else f"in versions {served}"
            kind = NotServedError if served is None else UnsupportedVersionError
            raise kind(
                f"{self.name} serves {spec.name} {offered}, this client needs {spec.versions}"
            )
        return version

    def exchange(
        self,
        spec: ApiSpec[Req, Resp],
        message: Req,
        deadline: Deadline,
        *,
        version: int | None = None,
    ) -> Resp:
        """Sends a request and waits for its answer, on a connection with no request in flight."""
        assert not self._in_flight, "an answer would be taken for another's"
        self.send(spec, message, deadline, version=version)
        answer: Resp = self.receive(deadline)
        return answer

    def send(
        self,
        spec: ApiSpec[Req, Resp],
        message: Req,
        deadline: Deadline,
        *,
        version: int | None = None,
        answered: bool = True,
    ) -> None:
        """Send; `answered` False for a request without an answer (acks=0). Logs in again before it
        where the session is about to end."""
        if self._log_in_at_ms is not None and monotonic_ms() >= self._log_in_at_ms:
            try:
                self._log_in(deadline)
            except HeadraceError:
                self.close()
                raise
        self._send(spec, message, deadline, version, answered=answered)

    def exchange_now(self, spec: ApiSpec[Req, Resp], message: Req, deadline: Deadline) -> Resp:
        """Like `exchange`, also while requests are in flight: their answers, which come first, are
        kept for `receive`."""
        earlier = len(self._in_flight) - len(self._early)
        version = self._send(spec, message, deadline, None, answered=False)
        for _ in range(earlier):
            self._early.append(self.socket.receive(deadline))
        return self._parsed(self.socket.receive(deadline), self._correlation_id, spec, version)

    def _send(
        self,
        spec: ApiSpec[Req, Resp],
        message: Req,
        deadline: Deadline,
        version: int | None,
        *,
        answered: bool,
    ) -> int:
        """Returns the version that was sent."""
        if version is None:
            version = self.version_for(spec)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            frame = encode_request_frame(
                spec, version, self._correlation_id, self._client_id, message
            )
        except (struct.error, AttributeError, ValueError, TypeError, OverflowError) as error:
            # A number, a text or a list of the caller's: it must not end a thread of a client.
            raise KafkaError(
                f"a value does not fit its field in a request {spec.name}: {error}",
                ErrorCode.INVALID_REQUEST,
            ) from error
        if answered:
            self._in_flight.append((self._correlation_id, spec, version))
        self.socket.send(frame, deadline)
        return version

    def receive(self, deadline: Deadline) -> Any:
        """The answer to the oldest request in flight."""
        if self._early:
            return self._decoded(self._early.popleft())
        try:
            frame = self.socket.receive(deadline)
        except ConnectionEndedError as error:
            if self._has_answered or self._sasl is not None:
                raise
            raise KafkaError(
                f"{error}; does its listener ask for a log-in (security.protocol)?", error.code
            ) from None
        self._has_answered = True
        return self._decoded(frame)

    def receive_nowait(self) -> Any | None:
        """Like `receive`, but returns None when no answer has arrived."""
        if self._early:
            return self._decoded(self._early.popleft())
        frame = self.socket.receive_nowait() if self._in_flight else None
        return None if frame is None else self._decoded(frame)

    def _decoded(self, frame: memoryview) -> Any:
        return self._parsed(frame, *self._in_flight.popleft())

    def _parsed(
        self, frame: memoryview, correlation_id: int, spec: ApiSpec[Req, Resp], version: int
    ) -> Resp:
        try:
            if read_correlation_id(frame) != correlation_id:
                raise KafkaError(
                    f"{self.name}: the broker sent the response to another request",
                    ErrorCode.NETWORK_EXCEPTION,
                )
            return parse_response(spec, version, frame)
        except HeadraceError:
            self.close()
            raise

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return len(self._in_flight)

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def has_buffered(self) -> bool:
        """Whether there are answers, or parts of one, that were received already."""
        return bool(self._early) or self.socket.has_buffered

    @property
    def reusable(self) -> bool:
        """Open, of this process, nothing under way; a byte to read would be the stream's end."""
        return self.socket.usable and not self._in_flight and not self.socket.readable()

    def close(self) -> None:
        self.socket.close()
