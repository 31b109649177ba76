"""SaslAuthenticate: one token of a log-in, and the server's answer to it.

    request     auth_bytes bytes
    response    error_code int16; error_message string or null; auth_bytes bytes;
                1: session_lifetime_ms int64

Versions: 1 the lifetime of what was shown (KIP-368). 2 flexible. Source: KIP-152.
"""

from dataclasses import dataclass, field

from storage_engine.core.errors import InvalidRequestError
from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import (
    INT32,
    Reader,
    Writer,
    decode_leniently,
    decode_with,
    uvarint,
)

KEY = 36
FIRST_FLEXIBLE = 2
FIRST_WITH_LIFETIME = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateRequest:
    """Comes as often as the mechanism needs."""

    auth_bytes: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateResponse:
    """After an error the connection is closed."""

    error_code: int = 0
    error_message: str | None = None
    auth_bytes: bytes = field(default=b"", repr=False)
    session_lifetime_ms: int = 0
    """After this time the client has to log in again; 0: never."""


def decode_request(version: int, body: memoryview) -> SaslAuthenticateRequest:
    return decode_with("SaslAuthenticate request", body, version >= FIRST_FLEXIBLE, _read_request)


def _read_request(reader: Reader) -> SaslAuthenticateRequest:
    request = SaslAuthenticateRequest(auth_bytes=_read_bytes(reader))
    reader.tags()
    return request


def encode_request(version: int, request: SaslAuthenticateRequest) -> list[Buffer]:
    writer = Writer(flexible=version >= FIRST_FLEXIBLE)
    _write_bytes(writer, request.auth_bytes)
    writer.tags()
    return [writer.data]


def decode_response(version: int, body: memoryview) -> SaslAuthenticateResponse:
    return decode_leniently(
        "SaslAuthenticate response",
        body,
        version >= FIRST_FLEXIBLE,
        lambda reader: _read_response(reader, version),
    )


def _read_response(reader: Reader, version: int) -> SaslAuthenticateResponse:
    response = SaslAuthenticateResponse(
        error_code=reader.int16(),
        error_message=reader.nullable_string(),
        auth_bytes=_read_bytes(reader),
        session_lifetime_ms=reader.int64() if version >= FIRST_WITH_LIFETIME else 0,
    )
    reader.tags()
    return response


def encode_response(version: int, response: SaslAuthenticateResponse) -> list[Buffer]:
    writer = Writer(flexible=version >= FIRST_FLEXIBLE)
    writer.int16(response.error_code)
    writer.nullable_string(response.error_message)
    _write_bytes(writer, response.auth_bytes)
    if version >= FIRST_WITH_LIFETIME:
        writer.int64(response.session_lifetime_ms)
    writer.tags()
    return [writer.data]


def _read_bytes(reader: Reader) -> bytes:
    data = reader.records()
    if data is None:
        raise InvalidRequestError("bytes are null where none may be")
    return bytes(data)


def _write_bytes(writer: Writer, value: bytes) -> None:
    size = len(value)
    writer.data += uvarint(size + 1) if writer.flexible else INT32.pack(size)
    writer.data += value


API = ApiSpec(
    key=KEY,
    name="SaslAuthenticate",
    min_version=0,
    max_version=2,
    first_flexible_version=FIRST_FLEXIBLE,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
)
