"""Sends a request on to the writer, as it came."""

import http.client
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headrace_registry.election.identity import Identity
from storage_engine.core.errors import ConfigError, HeadraceError
from storage_engine.core.schemas.registry.records import decode_json
from storage_engine.core.schemas.registry.registry_error import (
    FORWARDING_FAILED,
    NO_WRITER,
    RegistryError,
)
from storage_engine.net.deadline import Deadline

HEADER = "x-headrace-forwarded"
"""A request that has it goes no further."""
POSITION = "x-headrace-position"
"""A header of its answer: how far the writer has read `_schemas`."""
_CONNECT_S = 2.0
_ANSWER_S = 10.0
_MOST_BYTES = 64 << 20


class NotDoneError(HeadraceError):
    """The writer did not do it, or it may be done twice: it can be tried again."""


class RawRequest(NamedTuple):
    """A request as it came."""

    method: str
    target: str
    """The path, with the query, still encoded."""
    body: bytes
    headers: Mapping[str, str]
    is_forwarded: bool
    is_repeatable: bool
    """Whether doing it twice is doing it once."""


class Forwarded(NamedTuple):
    """The writer's answer."""

    status: int
    body: bytes
    position: int
    """The offset up to which the writer has read, exclusive; 0 where it does not say."""


class Forwarding:
    """To writers with TLS, whose certificates are checked."""

    def __init__(self, ca: Path | None) -> None:
        try:
            self._tls = ssl.create_default_context(cafile=None if ca is None else str(ca))
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"--ca {ca} can't be used: {error}") from None

    def send(self, raw: RawRequest, writer: Identity, deadline: Deadline) -> Forwarded:
        """NotDoneError where it can be tried again, RegistryError where that is not known."""
        limit_s = max(0.1, min(_ANSWER_S, deadline.left_ms / 1000))
        connection: http.client.HTTPConnection
        if writer.scheme == "https":
            connection = http.client.HTTPSConnection(
                writer.host, writer.port, timeout=_CONNECT_S, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(writer.host, writer.port, timeout=_CONNECT_S)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise NotDoneError(f"{writer.url}: {error}") from None
            connection.sock.settimeout(limit_s)
            headers = {**raw.headers, HEADER: "1"}
            try:
                connection.request(raw.method, raw.target, raw.body or None, headers)
                answer = connection.getresponse()
                body = answer.read(_MOST_BYTES)
            except (OSError, http.client.HTTPException) as error:
                text = f"{writer.url} has not answered: {str(error) or type(error).__name__}"
                if raw.is_repeatable:
                    raise NotDoneError(text) from None
                raise RegistryError(
                    FORWARDING_FAILED,
                    f"Error while forwarding, it may be done or not: {text}",
                ) from None
        finally:
            connection.close()
        if answer.status == 500 and _code_in(body) == NO_WRITER:
            raise NotDoneError(f"{writer.url} is not the writer any more")
        position = answer.getheader(POSITION, "0")
        return Forwarded(answer.status, body, int(position) if position.isdecimal() else 0)


def _code_in(body: bytes) -> object:
    try:
        document = decode_json(body)
    except ValueError:
        return None
    return document.get("error_code") if isinstance(document, dict) else None
