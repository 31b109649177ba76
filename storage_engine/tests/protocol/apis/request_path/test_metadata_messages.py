"""Metadata beyond what kio says of it: all topics, topics by id, long names."""

import struct
from uuid import UUID

import pytest

from storage_engine.protocol.apis import metadata
from storage_engine.tests.protocol.apis.buffers import joined


def test_metadata_0_asks_for_all_topics_with_an_empty_list_and_later_ones_with_null() -> None:
    everything = metadata.MetadataRequest(topics=None)
    nothing = metadata.MetadataRequest(topics=[])
    assert joined(metadata.API.encode_request(0, everything)) == struct.pack(">i", 0)
    assert joined(metadata.API.encode_request(1, everything)) == struct.pack(">i", -1)
    assert joined(metadata.API.encode_request(1, nothing)) == struct.pack(">i", 0)
    assert metadata.API.decode_request(0, memoryview(bytes(4))).topics is None
    assert metadata.API.decode_request(1, memoryview(bytes(4))).topics == []
    with pytest.raises(ValueError, match="can't ask for no topics"):
        metadata.API.encode_request(0, nothing)


def test_metadata_by_topic_id_needs_version_12() -> None:
    request = metadata.MetadataRequest(topics=[], topic_ids=[UUID(int=5)])
    with pytest.raises(ValueError, match="can't ask for topics by id"):
        metadata.API.encode_request(11, request)
    data = memoryview(joined(metadata.API.encode_request(12, request)))
    assert metadata.API.decode_request(12, data).topic_ids == [UUID(int=5)]


def test_a_name_of_more_than_32_kib_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ValueError, match="32768 bytes does not fit"):
        metadata.API.encode_request(1, metadata.MetadataRequest(topics=["n" * 32_768]))
