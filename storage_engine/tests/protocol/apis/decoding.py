"""Decodes bytes of any API."""

from typing import Any

from storage_engine.core.errors import InvalidRequestError
from storage_engine.protocol.apis.registry import spec_for

SOON_S = 30.0
"""Far above what any of these takes, far below a hang, also on a loaded machine."""


def decode(key: int, version: int, kind: str, data: bytes) -> Any:
    spec = spec_for(key)
    decoder = spec.decode_request if kind == "request" else spec.decode_response
    return decoder(version, memoryview(data))


def refuses(key: int, version: int, kind: str, data: bytes) -> bool:
    """False for bytes that happen to be a message; any other exception is a failure."""
    try:
        decode(key, version, kind, data)
    except InvalidRequestError:
        return True
    return False
