"""However a table's row groups lie, each offset is in one slice, and comes in order."""

import random

from hypothesis import given
from hypothesis import strategies as st

from headrace_lake.history.slices import OffsetSpan, RowGroup, plan_slices, watermarks


def group_of(rows, path="f", number=0, size_bytes=None):
    """The row group of such (partition, offset)s."""
    spans = {}
    for partition in {each for each, _ in rows}:
        offsets = [offset for each, offset in rows if each == partition]
        spans[partition] = OffsetSpan(min(offsets), max(offsets), len(offsets))
    size = len(rows) * 10 if size_bytes is None else size_bytes
    return RowGroup(path=path, number=number, size_bytes=size, spans=spans)


@st.composite
def layouts(draw):
    """Row groups of some partitions, most of them in order, some not, with gaps; and a cut."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    partitions = draw(st.integers(1, 4))
    rows = []
    for partition in range(partitions):
        offset = chance.randrange(5)
        for _ in range(chance.randrange(60)):
            rows.append((partition, offset))
            offset += 1 if chance.random() < 0.9 else chance.randrange(2, 20)
    rows.sort(key=lambda each: (each[1], each[0]))
    disorder = draw(st.sampled_from((0, 0, 5, 1000)))
    rows.sort(key=lambda each: each[1] + chance.randrange(disorder + 1))
    groups: list[RowGroup] = []
    held = {}
    while rows:
        count = chance.randrange(1, 25)
        part, rows = rows[:count], rows[count:]
        group = group_of(part, path=f"f{chance.randrange(3)}", number=len(groups))
        groups.append(group)
        held[group.place] = part
    wanted = {}
    for partition in range(partitions + 1):
        start = chance.randrange(70)
        wanted[partition] = (start, start + chance.randrange(70))
    chance.shuffle(groups)
    most = draw(st.sampled_from((None, 1, 7, 30)))
    return groups, held, wanted, draw(st.sampled_from((1, 100, 400, 10**6))), most


def rows_of(part, held):
    """What a reader gives: what lies below the watermark is given at once, in order."""
    buffer, given_rows = [], []
    for group, marks in zip(part.groups, watermarks(part.groups), strict=True):
        buffer += [
            (partition, offset)
            for partition, offset in held[group.place]
            if partition in part.wanted
            and part.wanted[partition][0] <= offset < part.wanted[partition][1]
        ]
        ready = [each for each in buffer if each[1] < marks.get(each[0], 2**63)]
        buffer = [each for each in buffer if each not in ready]
        given_rows += sorted(ready)
    assert buffer == []
    return given_rows


@given(layouts())
def test_each_wanted_offset_is_read_once_and_in_the_order_of_its_partition(layout):
    groups, held, wanted, target_bytes, most = layout
    slices = plan_slices(groups, wanted, target_bytes=target_bytes, most_offsets=most)
    read = [row for each in slices for row in rows_of(each, held)]
    expected = sorted(
        (partition, offset)
        for rows in held.values()
        for partition, offset in rows
        if wanted[partition][0] <= offset < wanted[partition][1]
    )
    assert sorted(read) == expected
    for partition in wanted:
        offsets = [offset for each, offset in read if each == partition]
        assert offsets == sorted(offsets)
    assert all(each.wanted for each in slices)
    if most is not None:
        assert all(each.offsets <= most for each in slices)


def test_row_groups_that_follow_one_another_are_each_read_by_one_task():
    groups = [
        group_of([(p, n) for n in range(first, first + 10) for p in range(4)], number=first)
        for first in range(0, 100, 10)
    ]
    slices = plan_slices(groups, dict.fromkeys(range(4), (0, 100)), target_bytes=800)
    assert [[each.number for each in part.groups] for part in slices] == [
        [0, 10],
        [20, 30],
        [40, 50],
        [60, 70],
        [80, 90],
    ]


def test_partitions_that_grow_unevenly_share_tasks_too():
    groups = [
        group_of(
            [(0, n) for n in range(first * 100, first * 100 + 100)] + [(1, first)], number=first
        )
        for first in range(10)
    ]
    slices = plan_slices(groups, {0: (0, 1000), 1: (0, 10)}, target_bytes=1)
    assert [[each.number for each in part.groups] for part in slices] == [[n] for n in range(10)]


def test_slices_do_not_overlap_where_a_row_group_ends_before_the_one_before_it():
    groups = [
        group_of([(0, n) for n in rows], number=number)
        for number, rows in enumerate(((0, 90), (1, 50), (2, 95), (3, 60)))
    ]
    slices = plan_slices(groups, {0: (0, 100)}, target_bytes=1)
    ends = [0, *(each.wanted[0][1] for each in slices)]
    assert [each.wanted[0][0] for each in slices] == ends[:-1]
    assert ends == sorted(ends)
