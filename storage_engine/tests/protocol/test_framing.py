"""Frames and their headers."""

import struct

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.static.primitive import i16, i32

from storage_engine.core.errors import InvalidRequestError
from storage_engine.protocol.apis import api_versions, fetch, metadata
from storage_engine.protocol.framing import (
    RequestHeader,
    encode_request_frame,
    encode_response_frame,
    parse_request_header,
    parse_response,
    read_correlation_id,
)
from storage_engine.tests.protocol.apis import kio_messages
from storage_engine.tests.protocol.apis.buffers import joined


class Slice:
    """A run of record batches that nobody may look into."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def view(self) -> memoryview:
        raise AssertionError("only the transport looks inside")


def kio_header(header_class: type, key: int, version: int, client_id: str | None) -> bytes:
    return kio_messages.encode(
        header_class(
            request_api_key=i16(key),
            request_api_version=i16(version),
            correlation_id=i32(-7),
            client_id=client_id,
        )
    )


@pytest.mark.parametrize("client_id", [None, "", "spark", "ключ"])
@pytest.mark.parametrize(("version", "header_class"), [(8, KioHeaderV1), (9, KioHeaderV2)])
def test_headers_of_kio_are_read(version: int, header_class: type, client_id: str | None) -> None:
    frame = kio_header(header_class, 3, version, client_id) + b"body"
    header, body = parse_request_header(memoryview(frame))
    assert header == RequestHeader(3, version, -7, client_id)
    assert bytes(body) == b"body"


@pytest.mark.parametrize("client_id", [None, "", "spark", "ключ"])
@pytest.mark.parametrize(("version", "header_class"), [(8, KioHeaderV1), (9, KioHeaderV2)])
def test_request_frames_have_the_header_that_kio_writes(
    version: int, header_class: type, client_id: str | None
) -> None:
    message = metadata.MetadataRequest(topics=["flights"])
    frame = joined(encode_request_frame(metadata.API, version, -7, client_id, message))
    body = joined(metadata.API.encode_request(version, message))
    expected = kio_header(header_class, 3, version, client_id) + body
    assert frame == struct.pack(">i", len(expected)) + expected


def test_a_header_of_very_many_tagged_fields_is_refused() -> None:
    tags = b"".join(bytes([tag, 0]) for tag in range(101))
    frame = kio_header(KioHeaderV2, 3, 12, "c")[:-1] + bytes([101]) + tags + b"body"
    with pytest.raises(InvalidRequestError, match="more than 100 tagged fields"):
        parse_request_header(memoryview(frame))


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    frame = kio_header(KioHeaderV2, 3, 12, "c")[:-1] + b"\x02\x00\x01x\x07\x00" + b"body"
    header, body = parse_request_header(memoryview(frame))
    assert header.client_id == "c"
    assert bytes(body) == b"body"


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"", "0 bytes are too few"),
        (struct.pack(">hhi", 3, 1, 1), "8 bytes are too few"),
        (struct.pack(">hhih", 999, 0, 1, 0), "there is no API with the key 999"),
        (struct.pack(">hhih", 1, 19, 1, 0), "version 19 is not served, 4-18 are"),
        (struct.pack(">hhih", 1, -1, 1, 0), "version -1 is not served, 4-18 are"),
        (struct.pack(">hhih", 3, 1, 1, -2), "length of -2"),
        (struct.pack(">hhih", 3, 1, 1, 5) + b"abc", "length of 5"),
        (struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe", "not UTF-8"),
        (struct.pack(">hhih", 3, 12, 1, 0), "ends too early"),
        (struct.pack(">hhih", 3, 12, 1, 0) + b"\x02\x01\x7f", "tagged fields"),
        (struct.pack(">hhih", 3, 12, 1, 0) + b"\x01\x01\x7fx", "a length says 127 bytes"),
        (struct.pack(">hhih", 3, 12, 1, 0) + b"\x80" * 9, "longer than five bytes"),
    ],
)
def test_a_header_that_is_none_is_an_invalid_request(frame: bytes, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        parse_request_header(memoryview(frame))


def test_only_the_header_of_an_api_versions_response_stays_plain_in_flexible_versions() -> None:
    ranges = api_versions.ApiVersionsResponse(api_keys=[api_versions.ApiVersion(3, 0, 12)])
    frame = joined(encode_response_frame(api_versions.API, 3, 5, ranges))
    assert frame[8:] == joined(api_versions.API.encode_response(3, ranges))
    answer = metadata.MetadataResponse(brokers=[], topics=[])
    frame = joined(encode_response_frame(metadata.API, 9, 5, answer))
    assert frame[8:] == b"\x00" + joined(metadata.API.encode_response(9, answer))
    frame = joined(encode_response_frame(metadata.API, 8, 5, answer))
    assert frame[8:] == joined(metadata.API.encode_response(8, answer))


@pytest.mark.parametrize("version", [8, 9])
def test_a_response_frame_is_read_back(version: int) -> None:
    answer = metadata.MetadataResponse(
        brokers=[metadata.MetadataBroker(broker_id=1, host="h", port=9092)],
        topics=[],
        controller_id=1,
    )
    frame = joined(encode_response_frame(metadata.API, version, 77, answer))
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    assert read_correlation_id(memoryview(frame)[4:]) == 77
    assert parse_response(metadata.API, version, memoryview(frame)[4:]) == answer


def test_a_response_of_three_bytes_is_an_invalid_one() -> None:
    with pytest.raises(InvalidRequestError, match="3 bytes are too few"):
        read_correlation_id(memoryview(b"abc"))


@pytest.mark.parametrize("version", range(4, 13))
def test_log_slices_go_into_a_frame_as_they_are_and_are_counted(version: int) -> None:
    slices = [Slice(1000), Slice(2000)]
    response = fetch.FetchResponse(
        [
            fetch.FetchPartitionResponse("a", 0, records=slices[0]),
            fetch.FetchPartitionResponse("a", 1, records=None),
            fetch.FetchPartitionResponse("b", 0, records=slices[1]),
        ]
    )
    buffers = encode_response_frame(fetch.API, version, 1, response)
    assert [buffer for buffer in buffers if isinstance(buffer, Slice)] == slices
    filled = joined([bytes(len(each)) if isinstance(each, Slice) else each for each in buffers])
    assert struct.unpack_from(">i", filled)[0] == len(filled) - 4
    partitions = parse_response(fetch.API, version, memoryview(filled)[4:]).partitions
    assert [len(partition.records) for partition in partitions] == [1000, 0, 2000]
