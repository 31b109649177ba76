"""Produce beyond what kio says of it: old versions, records, errors of records."""

import pytest
from kafka.protocol.producer import ProduceRequest as ForeignProduceRequest
from kafka.protocol.producer import ProduceResponse as ForeignProduceResponse

from storage_engine.protocol.apis import current_leaders, produce, wire
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


def test_topics_that_alternate_are_written_once_in_produce() -> None:
    partitions = [produce.ProducePartition(topic, i, b"x") for i in (0, 1) for topic in "ab"]
    assert [topic for topic, _ in wire.group_by_topic(partitions)] == ["a", "b"]
    data = joined(produce.encode_request(8, produce.ProduceRequest(None, 1, 1, partitions)))
    theirs = ForeignProduceRequest.decode(data, version=8)
    assert [topic.name for topic in theirs.topic_data] == ["a", "b"]


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("message", [None, "no"])
def test_the_records_for_which_a_batch_is_refused_are_named_from_version_8_on(version, message):
    bad = produce.ProducePartitionResponse(
        "t", 1, 87, -1, -1, -1, message, [(7, "column 'id' is null"), (9, None)]
    )
    good = produce.ProducePartitionResponse("t", 2, 0, 70, -1, 5 if version >= 5 else -1)
    for rows in ([bad], [bad, good]):
        (encoded_answer,) = produce.encode_response(version, produce.ProduceResponse(rows))
        answer, *others = produce.API.decode_response(
            version, memoryview(encoded_answer)
        ).partitions
        assert others == rows[1:]
        if version < 8:
            assert (answer.error_message, answer.record_errors) == (None, ())
        else:
            assert list(answer.record_errors) == [(7, "column 'id' is null"), (9, None)]
            assert answer.error_message == message
