"""What kio cannot say about Produce, Fetch and Metadata: records, old versions, special fields."""

import struct
from uuid import UUID

import pytest
from kafka.protocol.consumer import FetchResponse as ForeignFetchResponse
from kafka.protocol.producer import ProduceRequest as ForeignProduceRequest
from kafka.protocol.producer import ProduceResponse as ForeignProduceResponse

from storage_engine.protocol.apis import (
    current_leaders,
    fetch,
    metadata,
    produce,
    wire,
)
from storage_engine.tests.protocol.apis.buffers import joined


@pytest.mark.parametrize("version", range(13))
@pytest.mark.parametrize("topics", [1, 2])
def test_kafka_python_writes_produce_requests_that_we_read(version: int, topics: int) -> None:
    theirs = ForeignProduceRequest(
        acks=-1,
        timeout_ms=1500,
        topic_data=[
            ForeignProduceRequest.TopicProduceData(
                name=f"flights{topic}",
                partition_data=[
                    ForeignProduceRequest.TopicProduceData.PartitionProduceData(
                        index=4, records=b"batch"
                    )
                ],
            )
            for topic in range(topics)
        ],
    )
    data = theirs.encode(version=version)
    assert produce.API.decode_request(version, memoryview(data)) == produce.ProduceRequest(
        None,
        -1,
        1500,
        [produce.ProducePartition(f"flights{topic}", 4, b"batch") for topic in range(topics)],
    )
    ours = produce.API.decode_request(version, memoryview(data))
    assert joined(produce.encode_request(version, ours)) == data


@pytest.mark.parametrize("version", range(13))
def test_kafka_python_reads_our_produce_responses(version: int) -> None:
    response = produce.ProduceResponse(
        [
            produce.ProducePartitionResponse("a", 1, 0, 70, -1, 5),
            produce.ProducePartitionResponse("a", 2, 10, error_message="too large"),
        ],
        throttle_time_ms=3,
    )
    data = joined(produce.encode_response(version, response))
    theirs = ForeignProduceResponse.decode(data, version=version)
    first, second = theirs.responses[0].partition_responses
    assert (first.index, first.error_code, first.base_offset) == (1, 0, 70)
    assert (second.index, second.error_code, second.base_offset) == (2, 10, -1)
    if version >= 1:
        assert theirs.throttle_time_ms == 3
    if version >= 8:
        assert (first.error_message, second.error_message) == (None, "too large")


@pytest.mark.parametrize("version", [9, 10, 12])
def test_kafka_python_reads_from_version_10_on_who_leads_a_partition_now(version: int) -> None:
    moved = produce.ProducePartitionResponse("a", 1, 6, current_leader=(2, 7))
    nodes = [current_leaders.LeaderNode(2, "two.example", 9092, "r1")]
    response = produce.ProduceResponse([moved], nodes=nodes)
    data = joined(produce.encode_response(version, response))
    theirs = ForeignProduceResponse.decode(data, version=version)
    (partition,) = theirs.responses[0].partition_responses
    if version < 10:
        assert produce.API.decode_response(version, memoryview(data)).nodes == ()
        return
    leader = partition.current_leader
    assert (leader.leader_id, leader.leader_epoch) == (2, 7)
    (node,) = theirs.node_endpoints
    assert (node.node_id, node.host, node.port, node.rack) == (2, "two.example", 9092, "r1")


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 2_097_151, 2_097_152])
def test_records_are_slices_of_the_frame_and_never_copied(version: int, size: int) -> None:
    records = bytes(size)
    partition = produce.ProducePartition("flights", 1, records)
    buffers = produce.encode_request(version, produce.ProduceRequest(None, 1, 1000, [partition]))
    assert size == 0 or any(buffer is records for buffer in buffers)
    frame = bytearray(joined(buffers))
    decoded = produce.API.decode_request(version, memoryview(frame)).partitions[0].records
    assert isinstance(decoded, memoryview)
    assert decoded.obj is frame
    assert decoded == records


@pytest.mark.parametrize("version", [8, 9])
def test_a_topic_name_as_long_as_names_get_is_read(version: int) -> None:
    name = "n" * 249
    request = produce.ProduceRequest(None, 1, 0, [produce.ProducePartition(name, 0, b"x")])
    data = memoryview(joined(produce.encode_request(version, request)))
    assert produce.API.decode_request(version, data) == request


@pytest.mark.parametrize("version", range(4, 13))
def test_null_records_are_read_as_none_and_none_is_written_as_no_bytes(version: int) -> None:
    response = fetch.FetchResponse([fetch.FetchPartitionResponse("a", 0, 6)])
    data = joined(fetch.encode_response(version, response))
    theirs = ForeignFetchResponse.decode(data, version=version)
    assert theirs.responses[0].partitions[0].records == b""
    null = data[:-4] + b"\x00\x00\x00\x00" if version >= 12 else data[:-4] + b"\xff\xff\xff\xff"
    (partition,) = fetch.API.decode_response(version, memoryview(null)).partitions
    assert partition.records is None


def test_the_incarnation_of_a_follower_travels_where_kafka_15_has_it() -> None:
    request = fetch.FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=9, partitions=[], replica_id=3, replica_epoch=77
    )
    data = joined(fetch.encode_request(12, request))
    assert data.endswith(b"\x01\x01\x0d" + struct.pack(">iqb", 3, 77, 0))
    assert fetch.API.decode_request(12, memoryview(data)) == request._replace(forgotten=[])


def test_the_order_of_fetched_partitions_is_kept_even_when_topics_alternate() -> None:
    partitions = [fetch.FetchPartition(topic, index, 0, 9) for index in (0, 1) for topic in "ab"]
    request = fetch.FetchRequest(1, 1, 1, partitions)
    data = joined(fetch.encode_request(11, request))
    assert fetch.API.decode_request(11, memoryview(data)).partitions == partitions


def test_topics_that_alternate_are_written_once_in_produce() -> None:
    partitions = [produce.ProducePartition(topic, i, b"x") for i in (0, 1) for topic in "ab"]
    assert [topic for topic, _ in wire.group_by_topic(partitions)] == ["a", "b"]
    data = joined(produce.encode_request(8, produce.ProduceRequest(None, 1, 1, partitions)))
    theirs = ForeignProduceRequest.decode(data, version=8)
    assert [topic.name for topic in theirs.topic_data] == ["a", "b"]


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
