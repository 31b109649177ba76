"""`headrace dump-log --verify-index`: what is wrong with the indexes of segments."""

import json
import random
from pathlib import Path

import pytest

from storage_engine.log.segments import indexes
from storage_engine.tests.log.support import fill, open_log, segment_files
from storage_engine.tests.sampling import seeds
from storage_engine.tests.tools.inspection.segments import Segment, dump


def _verify(*arguments: object) -> int:
    return dump("--verify-index", *arguments)


def test_the_indexes_beside_a_log_are_verified(
    segment: Segment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _verify(segment.log, segment.index) == 0
    assert capsys.readouterr().out == "2 indexes, 4 entries, 0 wrong\n"


def test_indexes_written_by_a_log_are_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = open_log(tmp_path)
    fill(log, 60)
    log.close()
    assert _verify(*segment_files(tmp_path)) == 0
    assert ", 0 wrong" in capsys.readouterr().out


def test_wrong_entries_are_shown_as_a_table_and_alone(
    segment: Segment, capsys: pytest.CaptureFixture[str]
) -> None:
    segment.index.write_bytes(
        indexes.OFFSET_ENTRY.pack(2, segment.positions[1])
        + indexes.OFFSET_ENTRY.pack(5, segment.positions[2] + 1)
    )
    assert _verify(segment.log) == 1
    output, errors = capsys.readouterr()
    heading, row, summary = output.splitlines()
    assert heading.split() == ["FILE", "ENTRY", "LAST", "OFFSET", "VALUE", "PROBLEM"]
    assert str(segment.index) in row and str(segment.positions[2] + 1) in row
    assert summary == "2 indexes, 4 entries, 1 wrong"
    assert f"{segment.index}: entry 1: " in errors and errors.count("\n") == 1


def test_json_has_the_mismatches_of_every_index(
    segment: Segment, capsys: pytest.CaptureFixture[str]
) -> None:
    segment.timeindex.write_bytes(
        indexes.TIME_ENTRY.pack(2001, 2) + indexes.TIME_ENTRY.pack(3000, 5)
    )
    assert _verify("--json", segment.log) == 1
    index, timeindex = json.loads(capsys.readouterr().out)
    assert index == {"file": str(segment.index), "entries": 2, "mismatches": []}
    assert timeindex["mismatches"] == [
        {
            "entry": 0,
            "last_offset": 102,
            "timestamp": 2001,
            "problem": "the largest timestamp up to offset 102 is 2000",
        }
    ]


@pytest.mark.parametrize("entry", [(0, 0), (2, 0), (-1, -5), (2, 2**31 - 1)])
def test_entries_of_zeros_and_of_impossible_places_are_wrong(
    segment: Segment, capsys: pytest.CaptureFixture[str], entry: tuple[int, int]
) -> None:
    segment.index.write_bytes(indexes.OFFSET_ENTRY.pack(*entry))
    assert _verify(segment.index) == 1
    assert f"{segment.index}: entry 0: " in capsys.readouterr().err


def test_an_index_without_its_log_and_files_that_are_none_are_refused(
    segment: Segment, capsys: pytest.CaptureFixture[str]
) -> None:
    segment.log.unlink()
    for file in (segment.log, segment.index, segment.log.with_name("notes.txt")):
        assert _verify(file) == 1
        errors = capsys.readouterr().err
        assert str(file.stem) in errors and errors.count("\n") == 1


@pytest.mark.parametrize("seed", seeds(30))
def test_garbage_is_one_line_and_no_crash(
    segment: Segment, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    generator = random.Random(seed)
    for file in generator.sample([segment.log, segment.index, segment.timeindex], 2):
        file.write_bytes(generator.randbytes(generator.randrange(1, 90)))
    assert _verify(segment.log) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and ": entry " in errors
