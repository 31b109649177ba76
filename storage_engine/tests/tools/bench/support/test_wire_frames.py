"""Frames of the benchmark of the wire, and the check of their answers."""

from benchmarks.support.wire_frames import check_answers, produce_frames
from storage_engine.protocol.apis import produce as produce_api
from storage_engine.protocol.framing import parse_request_header, parse_response
from storage_engine.protocol.records.record_batch import validate_for_append

FRAMES = produce_frames("topic", 1024, 8, seed=3)


def test_frames_are_requests_with_one_batch_of_the_size_asked_for():
    assert len(FRAMES.ring) == 8 * FRAMES.frame_bytes
    for number in range(FRAMES.count):
        begin = number * FRAMES.frame_bytes
        frame = memoryview(FRAMES.ring)[begin + 4 : begin + FRAMES.frame_bytes]
        header, body = parse_request_header(frame)
        assert header.correlation_id == number
        (item,) = produce_api.API.decode_request(header.api_version, body).partitions
        ((_, batch),) = validate_for_append(item.records, max_message_bytes=1 << 20)
        assert batch.size_in_bytes == 1024
        assert batch.records_count == FRAMES.records_per_batch


def test_a_wrong_answer_is_found():
    good = bytearray(FRAMES.answer * 3)
    for number in range(3):
        good[number * len(FRAMES.answer) + 7] = number
    assert check_answers(good, FRAMES, first=0) is None
    assert "correlation id" in str(check_answers(good, FRAMES, first=1))
    assert parse_response(produce_api.API, 9, memoryview(FRAMES.answer)[4:]).partitions
    failed = bytearray(good)
    failed[FRAMES.base_offset_at - 1] = 2
    assert "answer 0" in str(check_answers(failed, FRAMES, first=0))
