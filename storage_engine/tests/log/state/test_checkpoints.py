"""Checkpoint files: replaced as a whole, ignored when damaged (R-LOG8, R-REP10)."""

import pytest
from crc32c import crc32c

from storage_engine.core.ids import TopicPartition
from storage_engine.core.replication.leader_epochs import EpochStart
from storage_engine.log.files.disk import REAL_DISK
from storage_engine.log.state.checkpoints import (
    read_epochs,
    read_offsets,
    write_epochs,
    write_offsets,
)

OFFSETS = {TopicPartition("a", 0): 5, TopicPartition("b-c.d_e", 12): 1 << 40}


def written(path, offsets=OFFSETS) -> bytes:
    write_offsets(REAL_DISK, path, offsets)
    return path.read_bytes()


def test_offsets_are_read_as_written(tmp_path):
    path = tmp_path / "checkpoint"
    lines = ["a 0 5", f"b-c.d_e 12 {1 << 40}"]
    checked = "".join(f"{line} {crc32c(line.encode()):08x}\n" for line in lines)
    assert written(path).decode() == f"1\n2\n{checked}"
    assert read_offsets(REAL_DISK, path) == (OFFSETS, False)
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]


def test_an_absent_or_empty_set_of_offsets(tmp_path):
    assert read_offsets(REAL_DISK, tmp_path / "none") == ({}, False)
    written(tmp_path / "empty", {})
    assert read_offsets(REAL_DISK, tmp_path / "empty") == ({}, False)


def test_epochs_are_read_as_written(tmp_path):
    entries = (EpochStart(0, 0), EpochStart(3, 17))
    write_epochs(REAL_DISK, tmp_path / "epochs", entries)
    assert [line[:-9] for line in (tmp_path / "epochs").read_text().split("\n")[2:-1]] == [
        "0 0",
        "3 17",
    ]
    assert read_epochs(REAL_DISK, tmp_path / "epochs") == list(entries)


@pytest.mark.parametrize("flip", [0x01, 0x41, 0x80, 0xFF])
def test_a_flipped_byte_costs_the_line_that_it_is_in(tmp_path, caplog, flip):
    path = tmp_path / "checkpoint"
    offsets = OFFSETS | {TopicPartition("d", 1): 6, TopicPartition("e", 0): 0}
    original = written(path, offsets)
    for position in range(len(original)):
        damaged = bytearray(original)
        damaged[position] ^= flip
        path.write_bytes(damaged)
        caplog.clear()
        found, is_damaged = read_offsets(REAL_DISK, path)
        assert is_damaged and "checkpoint damaged" in caplog.text, position
        assert found.items() <= offsets.items(), position
        # The end of a line takes the next one along.
        assert len(found) >= len(offsets) - (2 if original[position] == ord("\n") else 1), position


def test_what_is_left_of_a_cut_file_counts(tmp_path, caplog):
    path = tmp_path / "checkpoint"
    original = written(path)
    for size in range(len(original)):
        path.write_bytes(original[:size])
        caplog.clear()
        found, is_damaged = read_offsets(REAL_DISK, path)
        assert is_damaged and "checkpoint damaged" in caplog.text, size
        assert found.items() <= OFFSETS.items(), size
        assert len(found) >= original[:size].count(b"\n") - 2, size


def test_epochs_count_only_together(tmp_path, caplog):
    path = tmp_path / "epochs"
    write_epochs(REAL_DISK, path, (EpochStart(0, 0), EpochStart(3, 17)))
    original = path.read_bytes()
    for position in range(len(original)):
        damaged = bytearray(original)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        caplog.clear()
        assert read_epochs(REAL_DISK, path) == [], position
        assert "checkpoint ignored" in caplog.text, position


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0",
        b"0\n",
        b"0\n1\n",
        b"2\n0\n",
        b"0\n1\na 0 x\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 -1\n",
        b"0\nx\n",
        b"1\n1\na 0 5\n",
        b"1\n1\n",
        b"1\n1\n\n",
        b"1\n1\n\xff\xfe\n",
    ],
)
def test_a_damaged_file_counts_as_empty_with_a_warning(tmp_path, caplog, content):
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    assert read_offsets(REAL_DISK, path) == ({}, True)
    assert "checkpoint damaged" in caplog.text


@pytest.mark.parametrize("number", ["-1", "9223372036854775808", "1" * 5000, "\u0663", "1_0", "x"])
def test_a_number_out_of_range_is_told_and_not_believed(tmp_path, caplog, number):
    """As another program may have written it, check and all."""
    good, bad = "t 0 5", f"t 1 {number}"
    for name, lines in (("offsets", [good, bad]), ("epochs", [f"3 {number}"])):
        text = ["1", str(len(lines)), *(f"{line} {crc32c(line.encode()):08x}" for line in lines)]
        (tmp_path / name).write_text("\n".join([*text, ""]), encoding="utf-8")
    saved = read_offsets(REAL_DISK, tmp_path / "offsets")
    assert (saved.offsets, saved.is_damaged) == ({TopicPartition("t", 0): 5}, True)
    assert read_epochs(REAL_DISK, tmp_path / "epochs") == []
    assert caplog.text.count("checkpoint damaged") == 1
    assert caplog.text.count("checkpoint ignored") == 1
