"""The files of a segment: their names, and which are none. R-LOG1."""

import pytest

from storage_engine.log.segments.log_segment import INDEX_SUFFIX, file_name, offset_in_name
from storage_engine.tests.log.support import (
    fill,
    open_log,
    read_all,
    segment_files,
)


def test_segments_are_named_by_their_base_offset_in_20_digits(tmp_path):
    log = open_log(tmp_path)
    fill(log, 40)
    names = [path.name for path in segment_files(tmp_path)]
    assert names[0] == "00000000000000000000.log"
    assert len(names) == log.segment_count > 1
    for path in segment_files(tmp_path):
        assert read_all(log, int(path.stem))[0].base_offset == int(path.stem)


@pytest.mark.parametrize("offset", [0, 7, 2**63 - 1])
def test_a_name_is_read_as_it_is_written(offset):
    assert offset_in_name(file_name(offset, INDEX_SUFFIX), INDEX_SUFFIX) == offset


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000007.log",
        "7.index",
        "000000000000000000007.index",
        "0000000000000000000x.index",
        "-0000000000000000007.index",
        "00000000000000000007",
        "00000000000000000007.index.deleted",
        "\u0660" * 20 + ".index",
        ".index",
    ],
)
def test_another_name_is_none_of_an_index(name):
    assert offset_in_name(name, INDEX_SUFFIX) is None
