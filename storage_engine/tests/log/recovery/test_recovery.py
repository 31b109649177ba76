"""Opening a log after an unclean stop or damage: R-LOG8."""

import logging
import shutil

import pytest

from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.tests.log.support import (
    append,
    fill,
    make_batch,
    offsets_of,
    open_log,
    read_all,
    read_one,
    run_search,
    segment_files,
)
from storage_engine.tests.sampling import every_second

TINY = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0)


def test_a_clean_stop_needs_no_check_and_keeps_all(tmp_path):
    log = open_log(tmp_path)
    fill(log, 30)
    headers, epochs = read_all(log), log.leader_epochs.entries
    log.close()
    again = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
    assert again.recovered_bytes == 0
    assert read_all(again) == headers
    assert again.leader_epochs.entries == epochs


def test_only_segments_from_the_recovery_point_on_are_checked(tmp_path):
    log = open_log(tmp_path)
    fill(log, 20)
    log.flush()
    flushed = log.recovery_point
    sealed_bytes = sum(path.stat().st_size for path in segment_files(tmp_path)[:-1])
    fill(log, 40)
    total = log.size_in_bytes
    log.close_without_flush()
    again = open_log(tmp_path, recovery_point=flushed)
    assert again.recovered_bytes == total - sealed_bytes
    assert again.log_end_offset == log.log_end_offset


def test_a_torn_tail_is_cut_and_told(tmp_path, caplog):
    log = open_log(tmp_path)
    fill(log, 5)
    end = log.log_end_offset
    append(log, payload=bytes(100))
    log.close_without_flush()
    path = segment_files(tmp_path)[-1]
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    with caplog.at_level(logging.WARNING):
        again = open_log(tmp_path)
    assert again.log_end_offset == end
    assert f"end_offset={end} dropped_bytes=160" in caplog.text
    append(again)
    assert offsets_of(read_all(again)) == list(range(end + 1))


@pytest.mark.parametrize(
    "garbage", [b"\0", bytes(5000), b"\xff" * 100, b"text " * 30, bytes(make_batch())[:60]]
)
def test_garbage_at_the_end_is_cut(tmp_path, garbage):
    log = open_log(tmp_path)
    fill(log, 5)
    headers = read_all(log)
    log.close_without_flush()
    with segment_files(tmp_path)[-1].open("ab") as file:
        file.write(garbage)
    again = open_log(tmp_path)
    assert read_all(again) == headers


def test_garbage_after_a_stop_that_was_thought_clean_is_cut_too(tmp_path):
    log = open_log(tmp_path)
    fill(log, 5)
    headers = read_all(log)
    log.close()
    with segment_files(tmp_path)[-1].open("ab") as file:
        file.write(bytes(100))
    assert read_all(open_log(tmp_path, clean=True, recovery_point=999)) == headers


def test_a_batch_of_an_older_life_of_the_file_is_not_taken_for_a_new_one(tmp_path):
    """The base offset lies outside the CRC: an intact batch with the wrong offset must not pass."""
    log = open_log(tmp_path)
    fill(log, 5)
    end = log.log_end_offset
    log.close_without_flush()
    with segment_files(tmp_path)[-1].open("ab") as file:
        file.write(make_batch(base_offset=1, epoch=0))
        file.write(make_batch(base_offset=end + 7, epoch=0))
    assert open_log(tmp_path).log_end_offset == end


def test_segments_behind_the_damage_are_dropped(tmp_path, caplog):
    log = open_log(tmp_path)
    fill(log, 60)
    log.close_without_flush()
    files = segment_files(tmp_path)
    damaged = files[1]
    data = bytearray(damaged.read_bytes())
    first_size = read_header(data).size_in_bytes
    data[first_size + 70] ^= 1
    damaged.write_bytes(data)
    again = open_log(tmp_path)
    assert segment_files(tmp_path) == files[:2]
    assert again.log_end_offset == int(damaged.stem) + read_header(data).records_count
    assert "it follows the damage" in caplog.text
    assert offsets_of(read_all(again)) == list(range(again.log_end_offset))


def test_every_flipped_byte_costs_at_most_what_follows_it(tmp_path):
    log = open_log(tmp_path / "good", TINY)
    fill(log, 4)
    headers = read_all(log)
    log.close_without_flush()
    original = segment_files(tmp_path / "good")[0].read_bytes()
    ends = [0]
    for header in headers:
        ends.append(ends[-1] + header.size_in_bytes)
    for position in every_second(range(len(original))):
        folder = tmp_path / f"flip{position}"
        shutil.copytree(tmp_path / "good", folder)
        damaged = bytearray(original)
        damaged[position] ^= 0x41
        segment_files(folder)[0].write_bytes(damaged)
        below = sum(1 for end in ends[1:] if end <= position)
        again = open_log(folder, TINY)
        found = read_all(again)
        assert found[:below] == headers[:below], position
        assert offsets_of(found) == list(range(again.log_end_offset)), position
        for header in found[below:]:
            # Only the leader epoch of the last batch can be wrong without anybody noticing.
            assert header._replace(partition_leader_epoch=0) in headers, position
        append(again, epoch=max(again.latest_epoch, 1))
        again.close_without_flush()
        shutil.rmtree(folder)


def test_every_length_of_a_cut_file_keeps_the_batches_within(tmp_path):
    log = open_log(tmp_path / "good", TINY)
    fill(log, 4)
    headers = read_all(log)
    log.close_without_flush()
    original = segment_files(tmp_path / "good")[0].read_bytes()
    for length in every_second(range(len(original))):
        folder = tmp_path / f"cut{length}"
        shutil.copytree(tmp_path / "good", folder)
        segment_files(folder)[0].write_bytes(original[:length])
        for clean in (True, False):
            again = open_log(folder, TINY, clean=clean, recovery_point=999 if clean else 0)
            size = 0
            within = []
            for header in headers:
                size += header.size_in_bytes
                if size <= length:
                    within.append(header)
            assert read_all(again) == within, length
            again.close_without_flush()
        shutil.rmtree(folder)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["flip", "cut", "zero", "remove"])
def test_damaged_indexes_change_no_answer(tmp_path, suffix, damage):
    """After a stop in order indexes are trusted, but what they say is checked against the log."""
    log = open_log(tmp_path / "good", LogConfig(segment_bytes=1500, index_interval_bytes=100))
    fill(log, 30)
    headers = read_all(log)
    end = log.log_end_offset
    answers = {ts: run_search(log.reads.search_timestamp(ts)) for ts in (0, 1000, end)}
    log.close()
    index = segment_files(tmp_path / "good", suffix)[0]
    original = index.read_bytes()
    assert len(original) > 40
    for position in every_second(range(len(original))) if damage in ("flip", "cut") else [0]:
        folder = tmp_path / str(position)
        shutil.copytree(tmp_path / "good", folder)
        target = segment_files(folder, suffix)[0]
        data = bytearray(original)
        if damage == "flip":
            data[position] ^= 0x41
        elif damage == "cut":
            del data[position:]
        elif damage == "zero":
            data = bytearray(len(original))
        target.write_bytes(data)
        if damage == "remove":
            target.unlink()
        again = open_log(folder, clean=True, recovery_point=end)
        for header in headers:
            piece = read_one(again, header.last_offset)
            assert read_header(piece.view()) == header, position
        assert read_all(again, max_bytes=300) == headers, position
        for timestamp, answer in answers.items():
            assert run_search(again.reads.search_timestamp(timestamp)) == answer, position
        again.close()
        shutil.rmtree(folder)


def test_recovered_indexes_equal_those_written_while_appending(tmp_path):
    log = open_log(tmp_path)
    fill(log, 60)
    log.close()
    names = segment_files(tmp_path, "index")
    written = {path.name: path.read_bytes() for path in names}
    for path in names:
        path.unlink()
    again = open_log(tmp_path)
    again.close()
    assert {path.name: path.read_bytes() for path in segment_files(tmp_path, "index")} == written


def test_a_huge_length_in_a_damaged_header_does_not_cost_memory(tmp_path):
    log = open_log(tmp_path, LogConfig())
    fill(log, 3)
    end = log.log_end_offset
    log.close_without_flush()
    path = segment_files(tmp_path)[0]
    with path.open("ab") as file:
        batch = make_batch(base_offset=end, epoch=0)
        batch[8:12] = (40 << 20).to_bytes(4, "big")
        file.write(batch)
        file.truncate(60 << 20)
    assert open_log(tmp_path, LogConfig()).log_end_offset == end


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["remove", "cut", "zero"])
def test_a_machine_crash_after_a_clean_stop_may_take_the_last_index(tmp_path, suffix, damage):
    """The indexes of the last segment are not synced at a clean stop; opening notices."""
    log = open_log(tmp_path, LogConfig(index_interval_bytes=100))
    fill(log, 30)
    append(log, timestamp_ms=5)
    headers, end = read_all(log), log.log_end_offset
    largest = run_search(log.reads.search_largest_timestamp())
    assert largest is not None
    log.close()
    path = segment_files(tmp_path, suffix)[0]
    if damage == "remove":
        path.unlink()
    else:
        size = path.stat().st_size
        path.write_bytes(bytes(size) if damage == "zero" else b"")
    again = open_log(tmp_path, LogConfig(), clean=True, recovery_point=end)
    assert read_all(again) == headers
    assert run_search(again.reads.search_largest_timestamp()) == largest
    assert again.retention.delete_old_segments(largest.timestamp_ms, high_watermark=end) == 0


def test_a_damaged_first_batch_that_the_time_index_names_is_met_by_no_error_at_a_clean_start(
    tmp_path,
):
    """One batch is the newest by time and stands before all entries of the offset index."""
    config = LogConfig(index_interval_bytes=1)
    log = open_log(tmp_path / "intact", config)
    append(log, timestamp_ms=9000, payload=bytes(50))
    for _ in range(3):
        append(log, timestamp_ms=1000, payload=bytes(50))
    end = log.log_end_offset
    log.close()
    for position in range(61):
        folder = tmp_path / str(position)
        shutil.copytree(tmp_path / "intact", folder)
        with segment_files(folder)[-1].open("r+b") as file:
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes([byte ^ 0xFF]))
        again = open_log(folder, config, clean=True, recovery_point=end)
        assert again.log_end_offset in (0, end)
        again.close_without_flush()
