"""Posts a listener's events to a console, on a thread of its own. A query never waits for it.

    Spark's listener -> bounded queue -> thread -> POST /api/v1/queries/progress
                        full: the oldest go        refused or unreachable: again, after a pause

Dropped events are counted, and reported in the log at most once a minute.
"""

import http.client
import ipaddress
import json
import logging
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import SplitResult, urlsplit

from connector.errors import ConnectorError

logger = logging.getLogger(__name__)

QUEUED_MAX = 1_000
"""The most events that are queued while the console can't be reached."""

EVENTS_PER_POST = 100
POST_MAX_BYTES = 250_000
"""The console takes 256 KiB."""

TIMEOUT_S = 5.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
TELL_S = 60.0
PATH = "/api/v1/queries/progress"
_AGAIN = (408, 429, 500, 502, 503, 504)
"""Answers after which the same post may succeed."""

Event = dict[str, Any]
"""An event as the console's API takes it, a JSON object."""

MakeEvent = Callable[[], Event | None]
"""Makes an event, on the posting thread; None where there is nothing to report."""


class ProgressPosts:
    """The queue and its thread, which begins with the first event."""

    def __init__(self, url: str, *, token: str | None = None, ca_file: str | None = None) -> None:
        """ConnectorError for an address that is none, or that a token may not be sent to."""
        found = _address(url)
        assert found.hostname is not None
        if token is not None and found.scheme == "http" and not _is_loopback(found.hostname):
            raise ConnectorError(
                "BAD_CONSOLE", f"a token is not sent to '{url}' in the clear: take https"
            )
        self._host, self._port = found.hostname, found.port
        self._is_https = found.scheme == "https"
        self._ca_file = ca_file
        self._path = found.path.rstrip("/") + PATH
        self._headers = {"Content-Type": "application/json", "X-Headrace-Progress": "1"}
        if token is not None:
            # A token that was read from a file has the end of its line.
            token = token.strip()
            if not token.isascii() or not token.isprintable():
                raise ConnectorError(
                    "BAD_CONSOLE",
                    "the token has characters that no header can have: give the console's"
                    " progress token as it is, without line breaks",
                )
            self._headers["Authorization"] = f"Bearer {token}"
        self._queue: deque[MakeEvent] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._told_s: float | None = None
        self._untold = 0
        self.posted = 0
        """Events that the console has taken."""
        self.dropped = 0
        """Events that were given up: the queue was full, or the console has refused them."""

    def add(self, make: MakeEvent) -> None:
        """Takes an event without waiting."""
        with self._changed:
            if self._over.is_set():
                return
            self._queue.append(make)
            if len(self._queue) > QUEUED_MAX:
                self._queue.popleft()
                self._note_dropped(1, "the console does not take them fast enough")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="headrace-query-metrics", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def close(self, timeout_s: float = 2.0) -> None:
        """Post the queued events, trying each once; returns after `timeout_s` at the latest."""
        with self._changed:
            self._over.set()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _note_dropped(self, count: int, reason: str) -> None:
        self.dropped += count
        self._untold += count
        now_s = time.monotonic()
        if self._told_s is None or now_s - self._told_s >= TELL_S:
            logger.warning("%d events of queries are not shown: %s", self._untold, reason)
            self._told_s, self._untold = now_s, 0

    # The thread.

    def _run(self) -> None:
        while makers := self._taken():
            events = [event for event in map(_made, makers) if event is not None]
            for body, count in _bodies(events):
                self._deliver(body, count)

    def _taken(self) -> list[MakeEvent]:
        """The oldest queued events, waiting for one; empty after `close` when none is left."""
        with self._changed:
            while not self._queue and not self._over.is_set():
                self._changed.wait()
            return [self._queue.popleft() for _ in range(min(EVENTS_PER_POST, len(self._queue)))]

    def _deliver(self, body: bytes, count: int) -> None:
        """Post until the console takes it or refuses it for good; after `close` only once."""
        pause_s = FIRST_PAUSE_S
        while True:
            status, reason = self._post(body)
            if status is not None and 200 <= status < 300:
                self.posted += count
                return
            is_over = self._over.is_set() or (status is not None and status not in _AGAIN)
            if is_over:
                with self._changed:
                    self._note_dropped(count, reason)
                return
            self._over.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _post(self, body: bytes) -> tuple[int | None, str]:
        """The status of the answer, None without one; and what is wrong."""
        where = f"the console at {self._host}:{self._port}"
        try:
            connection = self._connection()
            try:
                connection.request("POST", self._path, body, self._headers)
                answer = connection.getresponse()
                text = answer.read(2_000).decode("utf-8", "replace")
            finally:
                connection.close()
        except (OSError, ValueError, http.client.HTTPException) as error:
            return None, f"{where} does not answer: {error}"
        return answer.status, f"{where} answered {answer.status} {' '.join(text.split())[:300]}"

    def _connection(self) -> http.client.HTTPConnection:
        if not self._is_https:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        context = ssl.create_default_context(cafile=self._ca_file)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=TIMEOUT_S, context=context
        )


def _address(url: str) -> SplitResult:
    try:
        found = urlsplit(url)
        host, _ = (found.hostname or "").encode("idna"), found.port
        is_one = found.scheme in ("http", "https") and host and found.path.isascii()
    except ValueError:
        # Of a port that is none, or a name that nobody can look up.
        is_one = False
    if not is_one:
        raise ConnectorError(
            "BAD_CONSOLE",
            f"'{url}' is not the address of a console: http://HOST:PORT or https://HOST:PORT",
        )
    return found


def _made(make: MakeEvent) -> Event | None:
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - an event of another form must not end the thread
        logger.warning("an event of a query is not shown: %s", error)
        return None


def _bodies(events: list[Event]) -> Iterator[tuple[bytes, int]]:
    """Posts of these events, each with how many it has. One that is too large goes without its
    progress."""
    some: list[str] = []
    size = 0
    for event in events:
        text = json.dumps(event)
        if len(text) > POST_MAX_BYTES:
            text = json.dumps({**event, "progress": None})
        if some and size + len(text) > POST_MAX_BYTES:
            yield _body(some), len(some)
            some, size = [], 0
        some.append(text)
        size += len(text) + 1
    if some:
        yield _body(some), len(some)


def _body(texts: list[str]) -> bytes:
    return ('{"format":1,"events":[' + ",".join(texts) + "]}").encode()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
