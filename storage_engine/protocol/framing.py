"""Frames: a size, a header, a body.

    request     int32 size, int16 api key, int16 api version, int32 correlation id,
                nullable string client id, [tagged fields], body
    response    int32 size, int32 correlation id, [tagged fields], body

The tagged fields are there when the version is flexible.

The client id is a plain string in flexible versions too. The header of an ApiVersions response is
never flexible, because the client does not know yet what the broker speaks (KIP-511).

These functions read frames without the size, and write frames with it. Source: Kafka's
RequestHeader.json and ResponseHeader.json, KIP-482, KIP-511.
"""

import struct
from typing import NamedTuple

from storage_engine.core.errors import InvalidRequestError
from storage_engine.protocol.apis.registry import API_VERSIONS_KEY, APIS
from storage_engine.protocol.apis.spec import (
    AnyApi,
    ApiSpec,
    Buffer,
    LongMessageError,
    Req,
    Resp,
)
from storage_engine.protocol.apis.wire import Reader, malformed, name_from

SIZE_BYTES = 4
MIN_REQUEST_BYTES = 10
"""Api key, api version, correlation id and the length of the client id."""

_REQUEST_HEAD = struct.Struct(">hhih")
_FRAMED_REQUEST_HEAD = struct.Struct(">ihhih")
_CORRELATION_ID = struct.Struct(">i")
_SIZE_AND_CORRELATION_ID = struct.Struct(">ii")

_FLEXIBLE_RESPONSE_HEAD = struct.Struct(">iib")

_NO_TAGS = b"\x00"
_BYTES = (bytes, bytearray, memoryview)
_NEVER_FLEXIBLE = 32_767
_MOST_HEADER_TAGS = 100
"""The most tagged fields of a header: Kafka's protocol has none so far."""

# api key -> (oldest version, newest version, first version with a flexible header)
_VERSIONS: dict[int, tuple[int, int, int]] = {
    key: (
        *entry.versions,
        _NEVER_FLEXIBLE if entry.first_flexible_version is None else entry.first_flexible_version,
    )
    for key, entry in APIS.items()
}


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def parse_request_header(frame: memoryview) -> tuple[RequestHeader, memoryview]:
    """Return the header, and the body as a slice of `frame`.

    InvalidRequestError for an unknown API or a version that is not served. The connection has to
    be closed then, because the layout of the rest is unknown. An ApiVersions request of a version
    that is not served passes: answer it with `api_versions.unsupported_version_response`, and don't
    decode its body.
    """
    try:
        api_key, version, correlation_id, size = _REQUEST_HEAD.unpack_from(frame)
        oldest, newest, first_flexible = _VERSIONS[api_key]
    except struct.error:
        malformed("request header", f"{len(frame)} bytes are too few")
    except KeyError:
        malformed("request", f"there is no API with the key {api_key}")
    if not oldest <= version <= newest:
        if api_key == API_VERSIONS_KEY:
            return RequestHeader(api_key, version, correlation_id, None), frame[len(frame) :]
        entry = APIS[api_key]
        malformed(f"{entry.name} request", f"version {version} is not served, {entry.versions} are")
    if size < 0:
        position = 10
        client_id = None
        if size != -1:
            malformed("request header", f"the client id has a length of {size}")
    else:
        position = 10 + size
        if position > len(frame):
            malformed("request header", f"the client id has a length of {size}")
        try:
            client_id = name_from(bytes(frame[10:position]))
        except UnicodeDecodeError:
            malformed("request header", "the client id is not UTF-8")
    if version >= first_flexible:
        # Here and not in a function: no client sends any.
        if frame[position : position + 1] == _NO_TAGS:
            position += 1
        else:
            position = _skip_tags(frame, position)
    return RequestHeader(api_key, version, correlation_id, client_id), frame[position:]


def _skip_tags(frame: memoryview, position: int) -> int:
    """Return the position after the tagged fields of a header; none are known, all are skipped
    (KIP-482)."""
    if position < len(frame) and frame[position] == 0:
        return position + 1
    reader = Reader(frame, flexible=True, position=position, most_items=_MOST_HEADER_TAGS)
    try:
        reader.tags()
    except InvalidRequestError as error:
        malformed("header", error)
    except LongMessageError:
        malformed("header", f"it has more than {_MOST_HEADER_TAGS} tagged fields")
    except IndexError:
        malformed("header", "it ends too early")
    return reader.position


def encode_request_frame(
    spec: ApiSpec[Req, Resp],
    version: int,
    correlation_id: int,
    client_id: str | None,
    message: Req,
) -> list[Buffer]:
    """Return the pieces of a whole frame, size included. Records in `message` are not copied."""
    buffers = spec.encode_request(version, message)
    raw = b"" if client_id is None else client_id.encode()
    tags = b"\x00" if spec.is_flexible(version) else b""
    size = MIN_REQUEST_BYTES + len(raw) + len(tags) + sum(map(len, buffers))
    head = _FRAMED_REQUEST_HEAD.pack(
        size, spec.key, version, correlation_id, -1 if client_id is None else len(raw)
    )
    return _with_head(head + raw + tags, buffers)


def encode_response_frame(
    spec: ApiSpec[Req, Resp], version: int, correlation_id: int, message: Resp
) -> list[Buffer]:
    """Return the pieces of a whole frame, size included. LogSlices in `message` stay pieces."""
    buffers = spec.encode_response(version, message)
    size = sum(map(len, buffers))
    first_flexible = spec.first_flexible_version
    if first_flexible is None or version < first_flexible or spec.key == API_VERSIONS_KEY:
        head = _SIZE_AND_CORRELATION_ID.pack(4 + size, correlation_id)
    else:
        head = _FLEXIBLE_RESPONSE_HEAD.pack(5 + size, correlation_id, 0)
    return _with_head(head, buffers)


def read_correlation_id(frame: memoryview) -> int:
    """Return the correlation id of a response frame."""
    try:
        return int(_CORRELATION_ID.unpack_from(frame)[0])
    except struct.error:
        malformed("response header", f"{len(frame)} bytes are too few")


def response_body(spec: AnyApi, version: int, frame: memoryview) -> memoryview:
    """Return the body in a response frame, after its header."""
    if spec.is_flexible(version) and spec.key != API_VERSIONS_KEY:
        return frame[_skip_tags(frame, 4) :]
    return frame[4:]


def parse_response(spec: ApiSpec[Req, Resp], version: int, frame: memoryview) -> Resp:
    """Return the message in a response frame; the caller knows its request by
    `read_correlation_id`.

    InvalidRequestError for a malformed one. Records are slices of `frame`.
    """
    return spec.decode_response(version, response_body(spec, version, frame))


def _with_head(head: bytes, buffers: list[Buffer]) -> list[Buffer]:
    """Return the pieces with the head joined to the first, which is small and never a LogSlice."""
    first = buffers[0] if buffers else b""
    assert isinstance(first, _BYTES), "an encoder put a LogSlice first"
    if len(buffers) <= 1:
        return [head + first]
    buffers[0] = head + first
    return buffers
