"""SaslHandshake: a client names the SASL mechanism by which it logs in.

    request     mechanism string
    response    error_code int16; mechanisms, those that the listener takes

After version 0 the tokens follow as frames of their own; after version 1 in SaslAuthenticate.
Source: KIP-43, KIP-152.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import Reader, Writer, decode_leniently, decode_with

KEY = 17
TOKENS_IN_REQUESTS = 1
"""From this version on tokens come in SaslAuthenticate requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeRequest:
    """Comes before the first token."""

    mechanism: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeResponse:
    """Names the mechanisms in any case."""

    error_code: int = 0
    mechanisms: Sequence[str] = ()


def decode_request(_version: int, body: memoryview) -> SaslHandshakeRequest:
    return decode_with(
        "SaslHandshake request",
        body,
        False,
        lambda reader: SaslHandshakeRequest(mechanism=reader.string()),
    )


def encode_request(_version: int, request: SaslHandshakeRequest) -> list[Buffer]:
    writer = Writer(flexible=False)
    writer.string(request.mechanism)
    return [writer.data]


def decode_response(_version: int, body: memoryview) -> SaslHandshakeResponse:
    return decode_leniently("SaslHandshake response", body, False, _read_response)


def _read_response(reader: Reader) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(
        error_code=reader.int16(), mechanisms=reader.array(2, reader.string)
    )


def encode_response(_version: int, response: SaslHandshakeResponse) -> list[Buffer]:
    writer = Writer(flexible=False)
    writer.int16(response.error_code)
    writer.count(len(response.mechanisms))
    for mechanism in response.mechanisms:
        writer.string(mechanism)
    return [writer.data]


API = ApiSpec(
    key=KEY,
    name="SaslHandshake",
    min_version=0,
    max_version=1,
    first_flexible_version=None,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
)
