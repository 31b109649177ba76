"""The connections to the schema registry for one principal, who logs in there, too.

What was fetched is kept for a minute, and never for another principal: so who may not see a schema
any more stops to read by it. Source: R-CON3.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from headrace_console.problem import ConsoleError
from storage_engine.client.framed_values.framed_json import FramedJson, ReadBounds
from storage_engine.client.schema_registry import SchemaRegistry
from storage_engine.client.schema_registry_http import (
    RegistryAddress,
    RegistryHttp,
    SchemaRegistryError,
)
from storage_engine.core.errors import DeadlineExceededError
from storage_engine.core.security.security_protocol import Secret

REQUEST_TIMEOUT_MS = 2_000
"""A page waits no longer for it; the other things on it are shown."""
KEPT_S = 60.0
MOST_CLIENTS = 4
"""The most concurrent calls of one principal."""
MOST_PLACES = 1_000
_WAIT_S = 5.0
BOUNDS = ReadBounds(
    body_bytes=256 << 10,
    text_chars=16 << 20,
    new_ids=50,
    kept_schemas=100,
    kept_chars=1 << 20,
    away_s=5.0,
)
_KEPT_BYTES = 2 << 20

Result = TypeVar("Result")
Place = tuple[str, int, int]
"""A subject, a version, and how many other versions of subjects have the same schema."""


class RegistryReader:
    """Reads keys and values. For one thread at a time."""

    def __init__(self, address: RegistryAddress) -> None:
        self._registry = SchemaRegistry(address, lag_s=0.0, kept_bytes=_KEPT_BYTES)
        self._places: dict[tuple[int, str], Place | None] = {}
        self.values = FramedJson(self._registry, BOUNDS)
        self.made_s = time.monotonic()

    def place_of(self, schema_id: int, subject: str) -> Place | None:
        """Where the schema is registered: under `subject`, if it is there. None where the user may
        see no such place. Errors of the registry."""
        key = schema_id, subject
        if key not in self._places:
            if len(self._places) >= MOST_PLACES:
                self._places.clear()
            self._places[key] = _chosen(self._registry, schema_id, subject)
        return self._places[key]

    def close(self) -> None:
        self._registry.close()


def _chosen(registry: SchemaRegistry, schema_id: int, subject: str) -> Place | None:
    try:
        places = registry.places_of(schema_id)
    except SchemaRegistryError as error:
        if error.status != 404:
            raise
        return None
    if not places:
        return None
    own = [place for place in places if place[0] == subject]
    name, version = max(own) if own else min(places)
    return name, version, len(places) - 1


class RegistryUpstream:
    """The connections of one principal. Its calls block: the server runs them on threads."""

    def __init__(self, address: RegistryAddress, log_in: Secret | None) -> None:
        """`log_in`: the `user:password` of a principal who has logged in."""
        self._address = replace(
            address,
            user_info=address.user_info if log_in is None else log_in,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            patience_ms=REQUEST_TIMEOUT_MS,
        )
        self._room = threading.BoundedSemaphore(MOST_CLIENTS)
        self._lock = threading.Lock()
        self._idle: deque[RegistryHttp] = deque()
        self._closed = False
        self._reading = threading.Lock()
        self._reader: RegistryReader | None = None

    def ask(self, work: Callable[[RegistryHttp], Result]) -> Result:
        """Return the result of `work`, which has a client for itself meanwhile."""
        if not self._room.acquire(timeout=_WAIT_S):
            raise _busy()
        try:
            with self._lock:
                http = self._idle.pop() if self._idle else None
            if http is None:
                http = RegistryHttp(self._address)
            try:
                return work(http)
            finally:
                self._give_back(http)
        finally:
            self._room.release()

    def _give_back(self, http: RegistryHttp) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(http)
                return
        http.close()

    def read(self, work: Callable[[RegistryReader], Result]) -> Result:
        """Return the result of `work`; one at a time reads, so that schemas are kept once."""
        if not self._reading.acquire(timeout=_WAIT_S):
            raise _busy()
        try:
            reader = self._reader
            if reader is not None and time.monotonic() - reader.made_s >= KEPT_S:
                reader.close()
                reader = None
            if reader is None:
                reader = RegistryReader(self._address)
            self._reader = reader
            return work(reader)
        finally:
            if self._closed and self._reader is not None:
                self._reader.close()
                self._reader = None
            self._reading.release()

    def close(self) -> None:
        """Close idle clients; one in use is closed when it is given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, deque()
        for http in idle:
            http.close()
        if self._reading.acquire(blocking=False):
            try:
                if self._reader is not None:
                    self._reader.close()
                    self._reader = None
            finally:
                self._reading.release()


def _busy() -> ConsoleError:
    return ConsoleError(
        "no_answer", "the connections to the schema registry are busy; try again in a moment"
    )


AWAY = (SchemaRegistryError, DeadlineExceededError)
"""The failures of a registry."""
