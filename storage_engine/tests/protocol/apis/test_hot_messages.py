"""What kio cannot say about Produce, Fetch and Metadata: records, old versions, special fields."""

import struct
from uuid import UUID

import pytest
from kafka.protocol.consumer import FetchResponse as ForeignFetchResponse
from kafka.protocol.producer import ProduceRequest as ForeignProduceRequest
from kafka.protocol.producer import ProduceResponse as ForeignProduceResponse

from storage_engine.core.errors import InvalidRequestError
from storage_engine.protocol.apis import (
    current_leaders,
    fetch,
    fetch_single,
    grouping,
    metadata,
    produce,
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
    assert produce.decode_request(version, memoryview(data)) == produce.ProduceRequest(
        None,
        -1,
        1500,
        [produce.ProducePartition(f"flights{topic}", 4, b"batch") for topic in range(topics)],
    )
    ours = produce.decode_request(version, memoryview(data))
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


@pytest.mark.parametrize("version", range(13))
def test_the_short_path_for_one_partition_writes_what_the_long_one_writes(version: int) -> None:
    one = produce.ProducePartitionResponse("flights", 1, 6, 70, 9, 5)
    short = joined(produce.encode_response(version, produce.ProduceResponse([one], 3)))
    assert short == produce._encode_many(version, produce.ProduceResponse([one], 3))


@pytest.mark.parametrize("version", [9, 10, 12])
def test_kafka_python_reads_from_version_10_on_who_leads_a_partition_now(version: int) -> None:
    moved = produce.ProducePartitionResponse("a", 1, 6, current_leader=(2, 7))
    nodes = [current_leaders.LeaderNode(2, "two.example", 9092, "r1")]
    response = produce.ProduceResponse([moved], nodes=nodes)
    data = joined(produce.encode_response(version, response))
    theirs = ForeignProduceResponse.decode(data, version=version)
    (partition,) = theirs.responses[0].partition_responses
    if version < 10:
        assert produce.decode_response(version, memoryview(data)).nodes == ()
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
    decoded = produce.decode_request(version, memoryview(frame)).partitions[0].records
    assert isinstance(decoded, memoryview)
    assert decoded.obj is frame
    assert decoded == records


@pytest.mark.parametrize("version", [8, 9])
def test_a_topic_name_as_long_as_names_get_takes_the_long_path(version: int) -> None:
    name = "n" * 249
    request = produce.ProduceRequest(None, 1, 0, [produce.ProducePartition(name, 0, b"x")])
    data = memoryview(joined(produce.encode_request(version, request)))
    assert produce.decode_request(version, data) == request


FETCHES = {
    "one": fetch.FetchRequest(500, 1, 99, [fetch.FetchPartition("a", 1, 70, 9, 3, 2, 5)], 2),
    "none": fetch.FetchRequest(500, 1, 99, [], 2, 1, 77, 5),
    "of an incarnation": fetch.FetchRequest(
        500, 1, 99, [fetch.FetchPartition("a", 1, 70, 9)], 2, replica_epoch=1 << 40
    ),
    "of a rack": fetch.FetchRequest(
        500, 1, 99, [fetch.FetchPartition("a", 1, 70, 9)], rack_id="r1"
    ),
    "damaged": fetch.FetchRequest(
        1, 1, 99, [fetch.FetchPartition("a", 1, 7, 9, was_damaged=True)], 2
    ),
    "two": fetch.FetchRequest(1, 1, 9, [fetch.FetchPartition("a", n, 7, 9) for n in (1, 2)], 2),
    "forgotten": fetch.FetchRequest(1, 1, 9, [], 2, session_id=7, forgotten=[("a", [1, 2])]),
    "damaged, the second": fetch.FetchRequest(
        1, 1, 9, [fetch.FetchPartition("a", n, 7, 9, was_damaged=n == 2) for n in (1, 2)], 2
    ),
    "long name": fetch.FetchRequest(1, 1, 9, [fetch.FetchPartition("n" * 249, 1, 7, 9)]),
    "two topics": fetch.FetchRequest(1, 1, 9, [fetch.FetchPartition(n, 1, 7, 9) for n in "ab"]),
    "many": fetch.FetchRequest(1, 1, 9, [fetch.FetchPartition("a", n, 7, 9) for n in range(130)]),
}
ANSWERS = {
    "records": fetch.FetchPartitionResponse("a", 1, 0, 70, 60, 5, records=b"x" * 200),
    "nothing": fetch.FetchPartitionResponse("a", 1, 0, 70, 60, 5),
    "isolated": fetch.FetchPartitionResponse("a", 1, 0, 70, 60, 5, [], -1, b"records"),
    "aborted": fetch.FetchPartitionResponse("a", 1, 0, 70, 60, 5, [(4, 8)], -1, b"records"),
    "elsewhere": fetch.FetchPartitionResponse("a", 1, 0, 70, preferred_read_replica=3),
    "diverging": fetch.FetchPartitionResponse("a", 1, 0, 70, diverging_epoch=(3, 60)),
    "moved": fetch.FetchPartitionResponse("a", 1, 6, current_leader=(2, 7)),
    "long name": fetch.FetchPartitionResponse("n" * 249, 1, 0, 70, records=b"records"),
}


def _long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("decode_request", "encode_request", "decode_response", "encode_response"):
        monkeypatch.setattr(fetch_single, name, lambda _version, _message: None)
    for name in ("decode_request_v11", "encode_response_v11"):
        monkeypatch.setattr(fetch_single, name, lambda _message: None)


def _by_id(message: fetch.FetchRequest | fetch.FetchPartitionResponse, version: int):
    """The message with the text of an id where versions with ids have one."""
    if version < fetch.FIRST_WITH_TOPIC_IDS:
        return message
    text = "AAAAAAAAAAAAAAAAAAAABw"
    if isinstance(message, fetch.FetchPartitionResponse):
        return message._replace(topic=text)
    return message._replace(
        partitions=[each._replace(topic=text) for each in message.partitions],
        forgotten=[(text, indexes) for _, indexes in message.forgotten],
    )


@pytest.mark.parametrize("version", range(11, 18))
def test_the_short_path_of_fetch_reads_and_writes_what_the_long_one_does(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [_by_id(each, version) for each in FETCHES.values()]
    answers = [_by_id(each, version) for each in ANSWERS.values()]
    responses = [fetch.FetchResponse([each], 0, 9) for each in answers]
    responses += [fetch.FetchResponse([answers[0], each], 0, 9) for each in answers]
    responses.append(fetch.FetchResponse([answers[0]] * 130, 0, 9))

    def coded() -> tuple[list[object], list[object]]:
        asked = [joined(fetch.encode_request(version, each)) for each in requests]
        told = [joined(fetch.encode_response(version, each)) for each in responses]
        read = [fetch.decode_request(version, memoryview(each)) for each in asked]
        heard = [fetch.decode_response(version, memoryview(each)) for each in told]
        return [*asked, *told], [*read, *heard]

    short = coded()
    _long_way(monkeypatch)
    assert coded() == short


@pytest.mark.parametrize("version", [11, 12, 13, 16])
def test_bytes_cut_or_changed_anywhere_mean_to_the_short_path_what_they_mean_to_the_long(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [
        bytes(joined(fetch.encode_request(version, _by_id(FETCHES[name], version))))
        for name in ("one", "none", "two", "of an incarnation", "of a rack")
    ]
    changed = [frame[:end] for frame in frames for end in range(len(frame))]
    for frame in frames:
        for at in range(len(frame)):
            rest = frame[at + 1 :]
            changed += [frame[:at] + bytes([n]) + rest for n in (0, 1, 2, 0x7F, 0x80, 0xFF)]

    def meaning(frame: bytes) -> object:
        try:
            return fetch.decode_request(version, memoryview(frame))
        except InvalidRequestError as error:
            return str(error)

    short = [meaning(each) for each in changed]
    _long_way(monkeypatch)
    assert [meaning(each) for each in changed] == short


@pytest.mark.parametrize("version", [11, 12, 13])
def test_answers_cut_or_changed_anywhere_mean_the_same_to_both_paths(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [ANSWERS["records"], ANSWERS["nothing"]._replace(partition=2), ANSWERS["records"]]
    answers = [_by_id(each, version) for each in some]
    frame = bytes(joined(fetch.encode_response(version, fetch.FetchResponse(answers, 0, 9))))
    changed = [frame[:end] for end in range(len(frame))]
    for at in range(len(frame)):
        changed += [frame[:at] + bytes([n]) + frame[at + 1 :] for n in (0, 1, 2, 0x7F, 0x80, 0xFF)]

    def meaning(data: bytes) -> object:
        try:
            return fetch.decode_response(version, memoryview(data))
        except InvalidRequestError as error:
            return str(error)

    short = [meaning(each) for each in changed]
    _long_way(monkeypatch)
    assert [meaning(each) for each in changed] == short


@pytest.mark.parametrize("version", range(4, 13))
def test_null_records_are_read_as_none_and_none_is_written_as_no_bytes(version: int) -> None:
    response = fetch.FetchResponse([fetch.FetchPartitionResponse("a", 0, 6)])
    data = joined(fetch.encode_response(version, response))
    theirs = ForeignFetchResponse.decode(data, version=version)
    assert theirs.responses[0].partitions[0].records == b""
    null = data[:-4] + b"\x00\x00\x00\x00" if version >= 12 else data[:-4] + b"\xff\xff\xff\xff"
    (partition,) = fetch.decode_response(version, memoryview(null)).partitions
    assert partition.records is None


def test_the_incarnation_of_a_follower_travels_where_kafka_15_has_it() -> None:
    request = fetch.FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=9, partitions=[], replica_id=3, replica_epoch=77
    )
    data = joined(fetch.encode_request(12, request))
    assert data.endswith(b"\x01\x01\x0d" + struct.pack(">iqb", 3, 77, 0))
    assert fetch.decode_request(12, memoryview(data)) == request._replace(forgotten=[])


def test_the_order_of_fetched_partitions_is_kept_even_when_topics_alternate() -> None:
    partitions = [fetch.FetchPartition(topic, index, 0, 9) for index in (0, 1) for topic in "ab"]
    request = fetch.FetchRequest(1, 1, 1, partitions)
    data = joined(fetch.encode_request(11, request))
    assert fetch.decode_request(11, memoryview(data)).partitions == partitions


def test_topics_that_alternate_are_written_once_in_produce() -> None:
    partitions = [produce.ProducePartition(topic, i, b"x") for i in (0, 1) for topic in "ab"]
    assert [topic for topic, _ in grouping.group_by_topic(partitions)] == ["a", "b"]
    data = joined(produce.encode_request(8, produce.ProduceRequest(None, 1, 1, partitions)))
    theirs = ForeignProduceRequest.decode(data, version=8)
    assert [topic.name for topic in theirs.topic_data] == ["a", "b"]


def test_metadata_0_asks_for_all_topics_with_an_empty_list_and_later_ones_with_null() -> None:
    everything = metadata.MetadataRequest(topics=None)
    nothing = metadata.MetadataRequest(topics=[])
    assert joined(metadata.encode_request(0, everything)) == struct.pack(">i", 0)
    assert joined(metadata.encode_request(1, everything)) == struct.pack(">i", -1)
    assert joined(metadata.encode_request(1, nothing)) == struct.pack(">i", 0)
    assert metadata.decode_request(0, memoryview(bytes(4))).topics is None
    assert metadata.decode_request(1, memoryview(bytes(4))).topics == []
    with pytest.raises(ValueError, match="can't ask for no topics"):
        metadata.encode_request(0, nothing)


def test_metadata_by_topic_id_needs_version_12() -> None:
    request = metadata.MetadataRequest(topics=[], topic_ids=[UUID(int=5)])
    with pytest.raises(ValueError, match="can't ask for topics by id"):
        metadata.encode_request(11, request)
    data = memoryview(joined(metadata.encode_request(12, request)))
    assert metadata.decode_request(12, data).topic_ids == [UUID(int=5)]


def test_a_name_of_more_than_32_kib_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ValueError, match="32768 bytes does not fit"):
        metadata.encode_request(1, metadata.MetadataRequest(topics=["n" * 32_768]))


def test_the_short_way_leaves_a_length_that_does_not_end_to_the_long_one() -> None:
    partition = fetch.FetchPartitionResponse("flights", 1, 0, 10, -1, 0, None, -1, b"abc")
    whole = joined(fetch.encode_response(12, fetch.FetchResponse([partition])))
    assert fetch_single.decode_response(12, memoryview(whole)) is not None
    length = whole.rindex(b"\x04abc")
    # As many bytes as a length may have, and each says that another one follows.
    endless = whole[:length] + b"\x84\x80\x80\x80\x80" + whole[length + 1 :]
    assert fetch_single.decode_response(12, memoryview(endless)) is None
