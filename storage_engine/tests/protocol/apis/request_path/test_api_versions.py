"""ApiVersions between a client and a broker that know other versions."""

import struct

import pytest

from storage_engine.protocol.apis import api_versions
from storage_engine.protocol.framing import (
    encode_response_frame,
    parse_request_header,
    parse_response,
)
from storage_engine.tests.protocol.apis.buffers import joined


@pytest.mark.parametrize("version", [5, 99, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_its_own_range(
    version: int,
) -> None:
    frame = struct.pack(">hhih", 18, version, 5, 3) + b"new" + b"\x00whatever comes then"
    header, _ = parse_request_header(memoryview(frame))
    assert (header.api_key, header.api_version, header.correlation_id) == (18, version, 5)
    answer = api_versions.unsupported_version_response()
    sent = joined(encode_response_frame(api_versions.API, 0, 5, answer))
    assert sent[4:] == struct.pack(">ihi3h", 5, 35, 1, 18, 0, 4)


def test_a_client_of_a_newer_version_reads_the_answer_of_version_0() -> None:
    answer = api_versions.unsupported_version_response()
    frame = memoryview(joined(encode_response_frame(api_versions.API, 0, 5, answer)))[4:]
    read = parse_response(api_versions.API, 3, frame)
    assert read.error_code == 35
    assert read.ranges() == {18: (0, 4)}


def test_an_unsupported_version_answered_in_no_known_form_is_still_that() -> None:
    # what librdkafka's mock cluster answers to version 3
    frame = bytes.fromhex("0000000100230100120000000200000000")
    read = parse_response(api_versions.API, 3, memoryview(frame))
    assert (read.error_code, read.ranges()) == (35, {})
