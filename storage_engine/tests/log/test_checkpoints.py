"""Checkpoint files: replaced as a whole, ignored when damaged (R-LOG8, R-REP10)."""

import pytest

from storage_engine.core.ids import TopicPartition
from storage_engine.core.leader_epochs import EpochStart
from storage_engine.log.checkpoints import read_epochs, read_offsets, write_epochs, write_offsets
from storage_engine.log.disk import REAL_DISK

OFFSETS = {TopicPartition("a", 0): 5, TopicPartition("b-c.d_e", 12): 1 << 40}


def test_offsets_are_read_as_written(tmp_path):
    path = tmp_path / "checkpoint"
    write_offsets(REAL_DISK, path, OFFSETS)
    assert path.read_text() == f"0\n2\na 0 5\nb-c.d_e 12 {1 << 40}\n"
    assert read_offsets(REAL_DISK, path) == OFFSETS
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]


def test_an_absent_or_empty_set_of_offsets(tmp_path):
    assert read_offsets(REAL_DISK, tmp_path / "none") == {}
    write_offsets(REAL_DISK, tmp_path / "empty", {})
    assert read_offsets(REAL_DISK, tmp_path / "empty") == {}


def test_epochs_are_read_as_written(tmp_path):
    entries = (EpochStart(0, 0), EpochStart(3, 17))
    write_epochs(REAL_DISK, tmp_path / "epochs", entries, sync=False)
    assert (tmp_path / "epochs").read_text() == "0\n2\n0 0\n3 17\n"
    assert read_epochs(REAL_DISK, tmp_path / "epochs") == list(entries)


def test_every_flipped_or_cut_byte_gives_the_offsets_or_none_or_one_other_number(tmp_path):
    """A text without a checksum can't know that a digit changed; anything else is noticed."""
    path = tmp_path / "checkpoint"
    write_offsets(REAL_DISK, path, OFFSETS)
    original = path.read_bytes()
    for position in range(len(original)):
        path.write_bytes(original[:position])
        assert read_offsets(REAL_DISK, path) == {}, position
        damaged = bytearray(original)
        damaged[position] ^= 0x41
        path.write_bytes(damaged)
        found = read_offsets(REAL_DISK, path)
        assert len(found) in (0, 2), position


@pytest.mark.parametrize(
    "content",
    [
        "",
        "0",
        "0\n",
        "0\n1\n",
        "1\n0\n",
        "0\n1\na 0 x\n",
        "0\n1\na 0\n",
        "0\n1\na 0 -1\n",
        "0\nx\n",
    ],
)
def test_a_damaged_file_counts_as_empty_with_a_warning(tmp_path, caplog, content):
    path = tmp_path / "checkpoint"
    path.write_text(content)
    assert read_offsets(REAL_DISK, path) == {}
    assert "checkpoint ignored" in caplog.text
