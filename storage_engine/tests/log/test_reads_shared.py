"""Followers that are told of an append read the same batches one after the other: they get one
slice, but never one of a log that has changed since.
"""

import pytest

from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.segments.segment_slice import SegmentSlice
from storage_engine.tests.log.support import append, fill, open_log


def read(log: PartitionLog, offset: int = 0, **options) -> SegmentSlice:
    found = log.reads.read(offset, **{"max_bytes": 500, **options})
    assert found is not None
    return found


def test_reads_of_the_same_batches_get_one_slice_as_long_as_they_are_shared(tmp_path):
    log = open_log(tmp_path)
    fill(log, 10)
    found: list[SegmentSlice] = []
    log.reads.share(lambda: found.extend(read(log) for _ in range(2)))
    assert found[0] is found[1]
    assert read(log) is not found[0]
    assert log.reads.shared is None
    log.close()


def test_a_shared_read_with_other_bounds_gets_batches_of_its_own(tmp_path):
    log = open_log(tmp_path)
    fill(log, 10)
    sizes: list[int] = []

    def readers() -> None:
        first = read(log)
        for options in (
            {"offset": first.end_offset},
            {"max_bytes": 300},
            {"max_offset": 3},
            {"at_least_one": False, "max_bytes": 500},
        ):
            other = read(log, **options)
            assert other is not first
            sizes.append(other.end_offset)
        # The first of what does not fit is given to one who has got nothing else.
        assert read(log, max_bytes=1).end_offset == 1
        assert log.reads.read(0, max_bytes=1, at_least_one=False) is None

    log.reads.share(readers)
    assert sizes[2] == 3
    log.close()


@pytest.mark.parametrize("cut", [0, 3])
def test_what_was_cut_and_written_anew_between_two_shared_reads_is_read_anew(tmp_path, cut):
    log = open_log(tmp_path)
    fill(log, 4)
    end = log.log_end_offset
    found: list[bytes] = []

    def readers() -> None:
        found.append(read(log, max_bytes=5000).read_bytes())
        log.truncation.truncate_to(cut)
        append(log, end - cut, epoch=1)
        assert log.log_end_offset == end
        found.append(read(log, max_bytes=5000).read_bytes())

    log.reads.share(readers)
    assert found[0] != found[1]
    assert found[1] == read(log, max_bytes=5000).read_bytes()
    log.close()


def test_an_append_between_two_shared_reads_is_read_by_the_second(tmp_path):
    log = open_log(tmp_path)
    fill(log, 2)
    ends: list[int] = []

    def readers() -> None:
        for _ in range(2):
            ends.append(read(log, max_bytes=5000).end_offset)
            fill(log, 1)

    log.reads.share(readers)
    assert ends[1] == ends[0] + 1
    log.close()


def test_readers_that_fail_leave_nothing_shared(tmp_path):
    log = open_log(tmp_path)
    fill(log, 2)

    def readers() -> None:
        read(log)
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        log.reads.share(readers)
    assert log.reads.shared is None
    assert read(log) is not read(log)
    log.close()
