"""kazoo's connections, with TLS where it is asked for.

kazoo makes a context of its own at each connection, from PEM files with a key that is not
encrypted, and believes the authorities of the system beside those that are named. Ours is made
once, of any store, and believes whom the settings name.

kazoo waits for the socket, not for what the library has read from it already: two answers in one
record would be one that comes with the next ping. `poll` knows what is there.

kazoo adapted to the event loop: one ordered queue of callbacks, a heartbeat, a watchdog.

All callbacks of kazoo go through `post` onto the loop, in the order in which they came over the
connection, so that a watch never overtakes the reply that set it. kazoo's own handler has two
threads for that, and no order between them.

kazoo's connection thread pings ZooKeeper by itself, so a broker whose loop hangs would keep its
session. Therefore the thread asks the loop for a sign of life every sixth of the session timeout,
and closes the session of a loop that has been silent for all of it. It measures that
by `time.monotonic`, which stands still while the machine is suspended: this thread sleeps then as
the loop does, and a loop that wakes with it does not hang. (The lease runs on meanwhile, see
`net.deadline`.)

A server that says nothing for a third of the session timeout while it owes an answer is given up
for another one, and is the last to be asked then: half of the session is left for that. kazoo would
wait for pings alone, and less up to 0.4 s drawn at random; a connection given up too soon costs a
server that is merely slow everything that was asked of it.
"""

import functools
import logging
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from types import SimpleNamespace
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, KazooException, SessionExpiredError
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.serialization import Close, Connect
from kazoo.retry import KazooRetry

from storage_engine.core.ports import Clock
from storage_engine.zookeeper.access import ANYBODY, ZooKeeperAccess

_NOT_YET = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Heard:
    """A connection whose end is told, if TLS is the reason: ZooKeeper refuses a certificate only
    when the handshake is over for the client."""

    def __init__(self, connection: ssl.SSLSocket, failed: Callable[[Exception], None]) -> None:
        self._connection = connection
        self._failed = failed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def recv(self, size: int) -> bytes:
        try:
            return self._connection.recv(size)
        except _NOT_YET:
            raise
        except ssl.SSLError as error:
            self._failed(error)
            raise


Sockets = Sequence[socket.socket | _Heard]
"""Sockets, or kazoo's own one, which wakes its thread."""
Ready = tuple[Sockets, Sockets, Sockets]


class EncryptingHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """A handler of kazoo whose connections are made with `tls`, or in the clear without it."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self.tls_problem = ""
        """Why TLS has failed with a server, in words; empty after a connection."""

    def create_connection(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        host = kwargs.get("hostname")
        plain = super().create_connection(*args, timeout=timeout, **kwargs)
        if self._tls is None:
            return plain
        try:
            # It bounds each read and write of the handshake; kazoo takes it away again.
            plain.settimeout(timeout)
            encrypted = self._tls.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            self._failed(error)
            raise
        except ValueError as error:
            # A name that can be on no certificate.
            plain.close()
            self._failed(error)
            raise ssl.SSLError(str(error)) from None
        self.tls_problem = ""
        return _Heard(encrypted, self._failed)

    def select(self, reads: Sockets, writes: Sockets, errors: Sockets, timeout: float) -> Ready:
        return poll(reads, writes, timeout)

    def _failed(self, error: Exception) -> None:
        self.tls_problem = _words(error)


def poll(reads: Sockets, writes: Sockets, timeout_s: float) -> Ready:
    """Return which of them are ready, in the form of `select.select`. One that fails is ready: its
    user then gets the error."""
    waiting = select.poll()
    for each in reads:
        waiting.register(each.fileno(), select.POLLIN)
    for each in writes:
        waiting.register(each.fileno(), select.POLLOUT)
    has_read = [each for each in reads if _pending(each)]
    ready = {descriptor for descriptor, _ in waiting.poll(0 if has_read else timeout_s * 1000)}
    return (
        [r for r in reads if r.fileno() in ready or r in has_read],
        [w for w in writes if w.fileno() in ready],
        [],
    )


def _pending(connection: socket.socket | _Heard) -> bool:
    return isinstance(connection, _Heard) and connection.pending() > 0


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return "it ended the handshake; is that its secureClientPort?"
    if isinstance(error, TimeoutError):
        return "it does not answer the handshake; is that its secureClientPort?"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        words = reason.replace("_", " ").lower()
        if "PROTOCOL" in reason:
            return f"it speaks no version of zookeeper.ssl.enabled.protocols ({words})"
        if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
            return f"it refuses the certificate of zookeeper.ssl.keystore.location ({words})"
        return words
    return str(error) or type(error).__name__


log = logging.getLogger(__name__)
_kazoo_log = log.getChild("kazoo")
_kazoo_log.setLevel(logging.INFO)
"""Below that kazoo writes the passwords of sessions."""

Post = Callable[[Callable[[], None]], None]

RECONNECT_DELAY_S = 0.05
RECONNECT_DELAY_MAX_S = 0.25
"""kazoo's default grows to an hour; a broker must be back soon after ZooKeeper is."""

BEATS_PER_TIMEOUT = 6
WAITS_PER_TIMEOUT = 3
"""A server's answer is waited for this part of the session timeout."""
_SLICES_PER_BEAT = 2
MIN_UNANSWERED = 2
"""The number of unanswered connect requests in a row after which a session is given up."""
_MIN_CONNECT_TIMEOUT_S = 0.5
_CLOSE_FRAME = struct.pack(">iii", 8, 2**31 - 1, Close.type)
"""The length, the transaction id (the answer is not read) and the type."""
_CLOSE_WAIT_S = 1.0


class _OrderedResult(AsyncResult):  # type: ignore[misc]  # kazoo has no types
    """The answer to one request, which keeps the place in which it came over the connection.

    kazoo posts a callback once it is linked. The answer, and the event of a watch that it set, may
    both come between the request and the link: posted then, the older would be the later, and what
    it says would stand for ever, with no watch on it.
    """

    def __init__(self, handler: "LoopHandler") -> None:
        super().__init__(handler)
        self._was_delivered = False

    def rawlink(self, callback: Callable[[AsyncResult], None]) -> None:
        with self._condition:
            if self._was_delivered:
                self._handler.completion_queue.put(functools.partial(callback, self))
            else:
                self._callbacks.append(callback)

    def _do_callbacks(self) -> None:
        """Called by kazoo as the answer comes."""
        self._handler.completion_queue.put(self._deliver)

    def _deliver(self) -> None:
        """Call what was linked until now; called on the loop, where the links are made."""
        with self._condition:
            self._was_delivered = True
        for callback in self._callbacks:
            callback(self)


class LoopHandler(EncryptingHandler):
    """A handler of kazoo with the event loop as its only worker."""

    def __init__(
        self,
        post: Post,
        on_beat: Callable[[], None],
        *,
        session_timeout_ms: int,
        servers: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(tls)
        # What kazoo puts into its queues goes to the loop.
        self.completion_queue = self.callback_queue = SimpleNamespace(put=post)
        self._post = post
        self._on_beat = on_beat
        self._timeout_s = session_timeout_ms / 1000
        self._connect_timeout_s = max(
            _MIN_CONNECT_TIMEOUT_S, self._timeout_s / (WAITS_PER_TIMEOUT * servers)
        )
        self._has_others = servers > 1
        self._beat_pending = False
        self._beat_posted_s = -inf
        self._loop_has_run = False
        """False until the loop has run: a broker starts before its loop, which can't answer so
        early."""
        self._main_socket: Callable[[], socket.socket | _Heard | None] = lambda: None
        self._owes_answer: Callable[[], bool] = lambda: False
        self._answer_timeout_s = self._timeout_s / WAITS_PER_TIMEOUT
        self._silent_since_s: float | None = None
        """Since when the server has owed an answer without sending anything."""
        self._address: tuple[str, int] | None = None
        """The server of the newest connection."""
        self._avoided: tuple[str, int] | None = None
        """The server that was given up last; another is asked first, until `_avoided_until_s`."""
        self._avoided_until_s = -inf

    @property
    def running(self) -> bool:
        """Always True: otherwise kazoo would run callbacks on its own thread while it stops."""
        return True

    def watch_over(self, client: KazooClient) -> None:
        """Set the client; called once, after kazoo has created it with this handler."""
        self._main_socket = lambda: client._connection._socket
        self._owes_answer = lambda: (
            bool(client._pending) or client._connection.ping_outstanding.is_set()
        )

    def session_timeout_is(self, negotiated_timeout_ms: int) -> None:
        """Record the negotiated timeout; called on kazoo's thread."""
        self._answer_timeout_s = negotiated_timeout_ms / 1000 / WAITS_PER_TIMEOUT

    def start(self) -> None:
        """Do nothing: there are no threads to start."""

    def stop(self) -> None:
        """Do nothing: there are no threads to stop."""

    def async_result(self) -> _OrderedResult:
        return _OrderedResult(self)

    def dispatch_callback(self, callback: Any) -> None:
        self._post(functools.partial(callback.func, *callback.args))

    def create_connection(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        address = kwargs.get("address")
        if address == self._avoided and time.monotonic() < self._avoided_until_s:
            raise ConnectionDropped("this server was silent just now, another is asked first")
        self._address = address
        # kazoo would give one dead server the whole session timeout, and lose the session over it.
        return super().create_connection(
            *args, timeout=min(timeout or inf, self._connect_timeout_s), **kwargs
        )

    def select(self, reads: Sockets, writes: Sockets, errors: Sockets, timeout: float) -> Ready:
        """Select as kazoo does, which creates an epoll descriptor for each request; between slices
        of waiting it checks the loop. While an answer is owed it does not return without a result,
        which kazoo takes for the end of the connection where a ping is open.
        """
        slice_s = self._timeout_s / (BEATS_PER_TIMEOUT * _SLICES_PER_BEAT)
        # Two sockets mean kazoo's idle wait, in which no frame is half read or written.
        is_idle = len(reads) == 2
        deadline_s = time.monotonic() + timeout
        while True:
            is_owed = is_idle and self._owes_answer()
            remaining_s = inf if is_owed else max(0.0, deadline_s - time.monotonic())
            ready = poll(reads, writes, min(remaining_s, slice_s))
            if is_idle:
                self._check_loop()
                self._check_answer(has_come=self._main_socket() in ready[0])
            if any(ready) or remaining_s <= slice_s:
                return ready

    def _check_answer(self, *, has_come: bool) -> None:
        now_s = time.monotonic()
        if has_come or not self._owes_answer():
            self._silent_since_s = None
        elif self._silent_since_s is None:
            self._silent_since_s = now_s
        elif now_s - self._silent_since_s >= self._answer_timeout_s:
            self._silent_since_s = None
            if self._has_others:
                self._avoided = self._address
                self._avoided_until_s = now_s + self._answer_timeout_s
            raise ConnectionDropped(f"no answer for {self._answer_timeout_s:.2f} s")

    def _check_loop(self) -> None:
        now_s = time.monotonic()
        silent_s = now_s - self._beat_posted_s if self._beat_pending else 0.0
        if self._loop_has_run and silent_s > self._timeout_s:
            self._loop_has_run = False
            self._give_up_session()
        due_s = self._beat_posted_s + self._timeout_s / BEATS_PER_TIMEOUT
        if not self._beat_pending and now_s >= due_s:
            self._beat_pending = True
            self._beat_posted_s = now_s
            self._post(self._beat)

    def _beat(self) -> None:
        """Record that the loop runs; called on the loop."""
        self._beat_pending = False
        self._loop_has_run = True
        self._on_beat()

    def _give_up_session(self) -> None:
        log.error("event loop silent for %.1f s: session closed", self._timeout_s)
        connection = self._main_socket()
        if connection is not None:
            try:
                connection.settimeout(_CLOSE_WAIT_S)
                connection.sendall(_CLOSE_FRAME)
                while connection.recv(4096):
                    pass
            except OSError as error:
                log.warning("session not closed reason=%s", error)
        raise ConnectionDropped("session given up because the event loop is silent")


def make_client(
    hosts: str,
    *,
    session_timeout_ms: int,
    handler: LoopHandler | None = None,
    client_id: tuple[int, bytes] | None = None,
    access: ZooKeeperAccess = ANYBODY,
) -> KazooClient:
    """Return a client that reconnects for ever, with short delays."""
    return KazooClient(
        hosts=hosts,
        timeout=session_timeout_ms / 1000,
        client_id=client_id,
        handler=handler or (access.tls and EncryptingHandler(access.tls)),
        connection_retry=KazooRetry(
            max_tries=-1,
            delay=RECONNECT_DELAY_S,
            max_delay=RECONNECT_DELAY_MAX_S,
            max_jitter=0.2,
        ),
        logger=_kazoo_log,
        **access.client_options(),
    )


def tls_problem(client: KazooClient) -> str:
    """Return why TLS has failed with the server that was asked last; empty where it has not."""
    handler = client.handler
    return handler.tls_problem if isinstance(handler, EncryptingHandler) else ""


def stop_client(client: KazooClient, timeout_ms: int) -> bool:
    """Close the client's session; return True when ZooKeeper has confirmed that in `timeout_ms`:
    kazoo stops without it, too. It waits ten seconds and more for a server that is gone, so this
    happens on a thread of its own."""
    is_confirmed = False
    read_response = client._connection._read_response

    def observed_response(header: Any, *body: Any) -> int | None:
        nonlocal is_confirmed
        kind: int | None = read_response(header, *body)
        is_confirmed |= kind == Close.type and not header.err
        return kind

    def stop() -> None:
        try:
            client.stop()
            client.close()
        except KazooException as error:
            log.warning("zookeeper client not stopped reason=%r", error)

    client._connection._read_response = observed_response
    stopper = threading.Thread(target=stop, name="zookeeper-close", daemon=True)
    stopper.start()
    stopper.join(timeout_ms / 1000)
    return is_confirmed


def observe_connects(
    client: KazooClient,
    clock: Clock,
    on_connect: Callable[[int, int], None],
    *,
    last_answer_ms: Callable[[], int],
    session_timeout_ms: int,
) -> None:
    """Call `on_connect(sent_monotonic_ms, negotiated_timeout_ms)` on kazoo's thread, before its
    listeners learn of the connection. kazoo keeps the negotiated timeout to itself.

    A server that is starting may take a connect request and never answer it. kazoo would wait the
    whole session timeout and so lose the session; a third of it leaves time for another attempt.

    Where requests arrive and answers don't, each attempt to connect keeps alive a session that can
    do nothing: its broker has no lease, and nobody may take its place. So a session that has had no
    answer (`last_answer_ms`) for twice its timeout, while servers took connections, is given up and
    left to expire. A server that can't be reached at all is waited for: its sessions outlive it.
    """
    answer_timeout_s = session_timeout_ms / 1000 / WAITS_PER_TIMEOUT
    unanswered = 0
    connection = client._connection
    invoke = connection._invoke

    def observed_invoke(timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return invoke(timeout, request, xid)
        nonlocal unanswered
        sent_monotonic_ms = clock.monotonic_ms()
        silent_ms = sent_monotonic_ms - last_answer_ms()
        is_deaf = unanswered >= MIN_UNANSWERED and silent_ms > 2 * session_timeout_ms
        if request.session_id and is_deaf:
            unanswered = 0
            raise SessionExpiredError(f"given up: connected, but no answer for {silent_ms} ms")
        unanswered += 1
        answer = invoke(min(timeout, answer_timeout_s), request, xid)
        unanswered = 0
        on_connect(sent_monotonic_ms, answer[0].time_out)
        return answer

    connection._invoke = observed_invoke
