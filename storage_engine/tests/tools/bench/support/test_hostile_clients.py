"""The most expensive requests: brokers can read them, so that they cost what they are meant to."""

import pytest

from benchmarks.support.hostile_clients import KINDS
from storage_engine.protocol.apis.registry import spec_for
from storage_engine.protocol.framing import SIZE_BYTES, parse_request_header


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_is_of_its_kind_and_can_be_read(kind):
    make, connections = KINDS[kind]
    frame = make()
    assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES
    header, body = parse_request_header(memoryview(bytearray(frame))[SIZE_BYTES:])
    spec = spec_for(header.api_key)
    assert kind.lower().startswith(spec.name.lower())
    spec.decode_request(header.api_version, body)
    assert connections > 0
