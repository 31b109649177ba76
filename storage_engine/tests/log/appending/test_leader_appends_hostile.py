"""R-REP2, R-LOG12: a batch that may not be taken leaves the log as it was, byte for byte, whether a
producer or a leader sent it.
"""

import struct
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    Codec,
    compute_crc,
    iter_headers,
    patch,
)
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.log.compaction_support import compact
from storage_engine.tests.log.support import TP, open_log, read_all, read_one, run_search
from storage_engine.tests.protocol.hostile_batches import (
    GOOD,
    INT64_MAX,
    INT64_MIN,
    MAX_MESSAGE_BYTES,
    ODD_BUT_FINE,
    REFUSED,
    REFUSED_BY_PLAIN_TOPICS,
    batch,
    bomb,
    compressed,
    crowd,
    headers,
    mutated,
    mutations,
    records,
    refused_by_compacted_topics,
)
from storage_engine.tests.sampling import examples

PLAIN = LogConfig(max_message_bytes=MAX_MESSAGE_BYTES)
COMPACTED = LogConfig(max_message_bytes=MAX_MESSAGE_BYTES, cleanup_policy="compact")
ZSTD = int(Codec.ZSTD)
BY_COMPACTED = refused_by_compacted_topics()

MIB = 1 << 20
PEAK_MAX_BYTES = 300 * MIB
"""The bytes that the check of a hostile batch may add to a process for a moment: 64 MiB of records,
at most 1 << 20, with some columns of 8 bytes for each. Measured: 72 to 131 MiB."""


def files_of(path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (path / str(TP)).iterdir()}


def append(log, data: bytes, **options):
    return log.leader_appends.append(
        memoryview(bytearray(data)), leader_epoch=0, now_ms=5000, **options
    )


def assert_refused(tmp_path, config: LogConfig, data: bytes, code: ErrorCode) -> None:
    log = open_log(tmp_path, config)
    append(log, GOOD)
    before = files_of(tmp_path)
    with pytest.raises(KafkaError) as failure:
        append(log, data, allow_transactional=False)
    assert failure.value.code is code
    assert str(failure.value)
    assert "\n" not in str(failure.value)
    assert files_of(tmp_path) == before
    assert append(log, GOOD).base_offset == 3
    log.close_without_flush()


BY_PLAIN = REFUSED | REFUSED_BY_PLAIN_TOPICS


@pytest.mark.parametrize("name", BY_PLAIN)
def test_a_hostile_batch_is_refused_with_its_code_and_changes_nothing(tmp_path, name):
    assert_refused(tmp_path, PLAIN, *BY_PLAIN[name])


@pytest.mark.parametrize("name", REFUSED)
def test_a_compacted_log_refuses_hostile_batches_too(tmp_path, name):
    assert_refused(tmp_path, COMPACTED, *REFUSED[name])


@pytest.mark.parametrize("name", BY_COMPACTED)
def test_a_batch_that_could_not_be_compacted_is_refused(tmp_path, name):
    assert_refused(tmp_path, COMPACTED, *BY_COMPACTED[name])


@pytest.mark.parametrize("config", [PLAIN, COMPACTED], ids=["plain", "compacted"])
@pytest.mark.parametrize("name", ODD_BUT_FINE)
def test_an_odd_batch_is_stored_rolled_indexed_and_found_again(tmp_path, name, config):
    data = ODD_BUT_FINE[name]
    log = open_log(tmp_path, config)
    append(log, GOOD)
    result = append(log, data)
    assert result.base_offset == 3
    append(log, GOOD)
    count = sum(header.records_count for _, header in iter_headers(data))
    assert log.log_end_offset == 6 + count
    for timestamp_ms in (INT64_MIN, 0, 1000, INT64_MAX):
        found = run_search(log.reads.search_timestamp(timestamp_ms))
        assert found is None or found.timestamp_ms >= timestamp_ms
    log.retention.delete_old_segments(5000, log.log_end_offset)
    log.flush()
    log.close_without_flush()
    again = open_log(tmp_path, config)
    assert again.log_end_offset == 6 + count
    stored = read_all(again)
    assert [header.crc for header in stored[1:-1]] == [h.crc for _, h in iter_headers(data)]
    again.close_without_flush()


def test_absurd_timestamps_are_compacted_like_others(tmp_path):
    config = LogConfig(
        cleanup_policy="compact", segment_bytes=200, min_cleanable_dirty_ratio=0.0,
        file_delete_delay_ms=0,
    )  # fmt: skip
    log = open_log(tmp_path, config)
    for name in ("the least timestamps", "the largest timestamps", "a maximum before the base"):
        append(log, ODD_BUT_FINE[name])
        append(log, batch(records(1), count=1))
    append(log, GOOD)
    log.flush()
    end = log.log_end_offset
    assert compact(log)
    assert log.log_end_offset == end
    log.close_without_flush()


def status_bytes(field: str) -> int:
    """Return a figure of this process; Linux counts KiB."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith(field + ":")]
    return int(line.split()[1]) << 10


def grown_bytes(action) -> int:
    """By how much more memory than before was resident at some moment within `action`."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    except OSError as error:
        pytest.skip(f"this kernel does not let the peak of memory begin anew: {error}")
    before = status_bytes("VmRSS")
    action()
    return status_bytes("VmHWM") - before


@pytest.mark.parametrize(
    ("body", "count", "is_taken"),
    [
        (bomb, 1, False),
        (lambda: compressed(crowd(MIB)), MIB, True),
        (lambda: compressed(crowd(MIB + 1)), MIB + 1, False),
        (lambda: compressed(headers(31 * MIB)), 1, True),
    ],
    ids=["a value of 1 GiB", "a crowd of records", "more than are taken", "31 million headers"],
)
def test_a_bomb_costs_a_compacted_topic_bounded_memory(tmp_path, body, count, is_taken):
    data = batch(body(), count=count, attributes=ZSTD)
    config = LogConfig(max_message_bytes=len(data), cleanup_policy="compact")
    log = open_log(tmp_path, config)
    codes: list[ErrorCode] = []

    def send() -> None:
        try:
            append(log, data)
        except KafkaError as error:
            codes.append(error.code)

    assert grown_bytes(send) < PEAK_MAX_BYTES
    assert codes == ([] if is_taken else [ErrorCode.INVALID_RECORD])
    log.close_without_flush()


# --- any bytes


def resealed(data: bytearray, *, reseal: bool) -> bytearray:
    if reseal and len(data) >= HEADER_BYTES:
        struct.pack_into(">I", data, 17, compute_crc(data, 0, len(data)))
    return data


@settings(max_examples=examples(150), deadline=None)
@example(changes=[("byte", 35, 1)], reseal=True, compacts=False, packed=False)
@given(changes=mutations, reseal=st.booleans(), compacts=st.booleans(), packed=st.booleans())
def test_any_change_to_a_batch_is_refused_or_leaves_a_log_that_decodes(
    tmp_path_factory, changes, reseal, compacts, packed
):
    good = batch(compressed(records(3)), attributes=ZSTD) if packed else GOOD
    data = resealed(mutated(good, changes), reseal=reseal)
    path = tmp_path_factory.mktemp("log")
    log = open_log(path, COMPACTED if compacts else PLAIN)
    append(log, GOOD)
    before = files_of(path)
    try:
        append(log, bytes(data), allow_transactional=False)
    except KafkaError:
        assert files_of(path) == before
    else:
        # A time that was changed may have rolled the log: a read ends with its segment.
        stored = bytearray()
        end = 0
        while end < log.log_end_offset:
            piece = read_one(log, end, max_bytes=1 << 20)
            stored += piece.view()
            end = list(iter_headers(piece.view()))[-1][1].next_offset
        assert end == log.log_end_offset
        if compacts:
            assert len(decode_batches(memoryview(stored))) == end
    log.close_without_flush()


@settings(max_examples=examples(150), deadline=None)
@given(changes=mutations, reseal=st.booleans(), batches=st.integers(1, 3))
def test_any_change_to_what_a_leader_sends_is_refused_or_leaves_a_log_that_opens(
    tmp_path_factory, changes, reseal, batches
):
    sent = bytearray()
    for number in range(batches):
        one = bytearray(GOOD)
        patch(one, 0, base_offset=3 + 3 * number, leader_epoch=0)
        sent += one
    data = resealed(mutated(sent, changes), reseal=reseal and batches == 1)
    path = tmp_path_factory.mktemp("log")
    log = open_log(path, PLAIN)
    append(log, GOOD)
    before = files_of(path)
    try:
        log.follower_appends.append(memoryview(data))
    except KafkaError:
        assert files_of(path) == before
        assert log.log_end_offset == 3
    end = log.log_end_offset
    stored = read_all(log)
    assert stored[-1].next_offset == end
    log.close_without_flush()


@pytest.mark.parametrize(
    "data",
    [
        batch(base_offset=INT64_MAX - 1),
        batch(base_offset=3, last_offset_delta=-1),
        batch(base_offset=2),
        batch(base_offset=3, crc_xor=1),
        batch(base_offset=3, magic=1),
        batch(base_offset=3, length=0),
    ],
    ids=["beyond the last offset", "no records", "an offset that is there", "a CRC",
         "an old magic", "no length"],
)  # fmt: skip
def test_a_follower_refuses_what_no_leader_may_send(tmp_path, data):
    log = open_log(tmp_path, PLAIN)
    append(log, GOOD)
    before = files_of(tmp_path)
    with pytest.raises(KafkaError) as failure:
        log.follower_appends.append(memoryview(bytearray(data)))
    assert failure.value.code is ErrorCode.CORRUPT_MESSAGE
    assert files_of(tmp_path) == before
    assert log.log_end_offset == 3
    again = bytearray(GOOD)
    patch(again, 0, base_offset=3, leader_epoch=0)
    assert log.follower_appends.append(memoryview(again)).last_offset == 5
    log.close_without_flush()
