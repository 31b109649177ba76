"""What is found wrong with a log and its indexes."""

from pathlib import Path

import pytest

from storage_engine.log.segments import indexes
from storage_engine.tests.tools.inspection.segments import BASE_OFFSET, Segment, dump


def test_a_flipped_bit_is_a_crc_error_with_the_place(
    segment: Segment, capsys: pytest.CaptureFixture[str]
) -> None:
    segment.damage(segment.positions[2] - 1)
    assert dump(segment.log) == 1
    output, errors = capsys.readouterr()
    assert f"{segment.log}: batch at byte {segment.positions[1]}: CRC does not match" in errors
    assert errors.count("\n") == 1
    assert "3 batches" in output  # the length was right, so that the rest is shown


def test_a_torn_tail_is_told_with_the_bytes_that_are_left(
    segment: Segment, capsys: pytest.CaptureFixture[str]
) -> None:
    content = segment.log.read_bytes()
    segment.log.write_bytes(content[:-5])
    assert dump(segment.log) == 1
    assert "cut off: the batch has" in capsys.readouterr().err


def test_garbage_ends_the_listing(segment: Segment, capsys: pytest.CaptureFixture[str]) -> None:
    segment.log.write_bytes(segment.log.read_bytes() + b"\x00" * 100)
    assert dump(segment.log) == 1
    output, errors = capsys.readouterr()
    assert "3 batches" in output
    assert f"batch at byte {segment.positions[2] + 0}" not in errors
    assert "its length is 0" in errors


def test_an_offset_below_the_one_before_is_told(
    segment: Segment, capsys: pytest.CaptureFixture[str]
) -> None:
    content = segment.log.read_bytes()
    segment.log.write_bytes(content + content[: segment.positions[1]])
    assert dump(segment.log) == 1
    assert "base offset 100 is below 106, the next one" in capsys.readouterr().err


def test_an_index_entry_that_points_elsewhere_is_told(
    segment: Segment, capsys: pytest.CaptureFixture[str]
) -> None:
    segment.index.write_bytes(indexes.OFFSET_ENTRY.pack(2, segment.positions[2]))
    assert dump(segment.index) == 1
    assert "entry 0: the batch at byte" in capsys.readouterr().err


def test_an_index_that_does_not_increase_is_told_without_its_log(
    segment: Segment, capsys: pytest.CaptureFixture[str]
) -> None:
    segment.log.unlink()
    segment.index.write_bytes(
        indexes.OFFSET_ENTRY.pack(2, 9) + indexes.OFFSET_ENTRY.pack(2, 10) + b"x"
    )
    assert dump(segment.index) == 1
    output, errors = capsys.readouterr()
    assert "entry 1: does not increase (and 1 more)" in errors
    assert "1 bytes at the end are no whole entry" in output


def test_a_time_index_that_lies_is_told(
    segment: Segment, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray(segment.timeindex.read_bytes())
    content[7] += 1
    segment.timeindex.write_bytes(content)
    assert dump(segment.timeindex) == 1
    assert "the largest timestamp up to offset 102 is 2000" in capsys.readouterr().err


def test_files_that_are_no_segments_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("server.log", "00.txt", "notes"):
        assert dump(tmp_path / name) == 1
        assert "is not a file of a segment" in capsys.readouterr().err
    assert dump(tmp_path / f"{BASE_OFFSET:020d}.log") == 1
    assert "No such file" in capsys.readouterr().err


def test_an_empty_segment_is_intact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.touch()
    assert dump(path) == 0
    assert "0 batches, 0 records" in capsys.readouterr().out
