"""How many files there are, and how often a row is rewritten, on a clock that runs fast."""

import pytest

from headrace_lake.delta.upkeep import TAIL_INTERVAL
from headrace_lake.protocol.compaction_plan import LakeFile, plan_compaction

TARGET = 128 * 2**20
WEEK = 20_160
"""Commits, each half a minute."""


def after_a_week(commit_bytes: int) -> tuple[int, int, int]:
    """(files at the end of the last day, the most at any time, bytes written in rewrites)"""
    files: list[LakeFile] = []
    most = rewritten = names = 0
    for version in range(1, WEEK + 1):
        names += 1
        files.append(LakeFile(path=str(names), size_bytes=commit_bytes, order=version))
        whole_tail = version % TAIL_INTERVAL == 0
        if version % 10 == 0:
            while plans := plan_compaction(files, TARGET, whole_tail=whole_tail):
                for group in plans:
                    names += 1
                    size = sum(each.size_bytes for each in group)
                    rewritten += size
                    files = [each for each in files if each not in group]
                    order = min(each.order for each in group)
                    files.append(LakeFile(path=str(names), size_bytes=size, order=order))
        most = max(most, len(files))
    assert sum(each.size_bytes for each in files) == WEEK * commit_bytes
    assert all(each.size_bytes < 2 * TARGET for each in files)
    return len(files), most, rewritten


@pytest.mark.parametrize("commit_bytes", [20_000, 100_000, 1_000_000])
def test_there_are_few_files_and_a_row_is_rewritten_seldom(commit_bytes):
    total = WEEK * commit_bytes
    of_one_write = -(-total // TARGET)
    files, most, rewritten = after_a_week(commit_bytes)
    assert files <= of_one_write * 1.2
    assert most <= of_one_write * 1.2 + 60
    assert rewritten <= 5 * total


def test_files_of_different_partitions_stay_apart():
    files = [
        LakeFile(path=f"{value}{order}", size_bytes=10, order=order, partition=(("p", value),))
        for value in "ab"
        for order in range(12)
    ]
    plans = plan_compaction(files, 1000, whole_tail=True)
    assert [[each.path for each in group] for group in plans] == [
        [f"a{order}" for order in range(12)],
        [f"b{order}" for order in range(12)],
    ]


def test_a_full_file_is_left_alone():
    full = [LakeFile(path=str(order), size_bytes=900, order=order) for order in range(20)]
    assert plan_compaction(full, 1000, whole_tail=True) == []
