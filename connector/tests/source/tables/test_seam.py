"""Where ranges are cut between table and log."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.errors import DataLossError
from connector.source.offset_range import OffsetRange
from connector.source.tables.seam import HeldOffsets, divide
from storage_engine.core.ids import TopicPartition

TP = TopicPartition("t", 0)


def divided(start, end, log_start, held, *, strict=True):
    wanted = OffsetRange(topic_partition=TP, start_offset=start, end_offset=end)
    found = divide([wanted], {TP: log_start}, lambda each: held, fail_on_data_loss=strict)
    return [
        [(each.start_offset, each.end_offset) for each in part]
        for part in (found.of_tables, found.of_logs)
    ]


@pytest.mark.parametrize(
    ("start", "end", "log_start", "held", "expected"),
    [
        (0, 100, 0, None, [[], [(0, 100)]]),
        (50, 100, 50, None, [[], [(50, 100)]]),
        (0, 100, 60, HeldOffsets(0, 80), [[(0, 60)], [(60, 100)]]),
        (10, 50, 60, HeldOffsets(5, 60), [[(10, 50)], []]),
        (0, 100, 200, HeldOffsets(0, 150), [[(0, 100)], []]),
        (0, 100, 60, None, [[], [(0, 100)]]),
    ],
)
def test_the_log_gives_what_it_has_and_the_table_the_rest(start, end, log_start, held, expected):
    assert divided(start, end, log_start, held) == expected


@pytest.mark.parametrize(
    ("held", "told", "left"),
    [
        (HeldOffsets(0, 50), "the table holds it up to 50, and the log begins at 60", [(0, 50)]),
        (HeldOffsets(20, 60), "the log begins at 60, and the table at 20", [(20, 60)]),
        (HeldOffsets(0, 0), "the table holds it up to 0", []),
    ],
)
def test_what_neither_has_is_a_loss(held, told, left, caplog):
    with pytest.raises(DataLossError, match=told):
        divided(0, 100, 60, held)
    with caplog.at_level(logging.WARNING):
        assert divided(0, 100, 60, held, strict=False) == [left, [(60, 100)]]
    assert told in caplog.text


@given(*[st.integers(0, 30)] * 5)
def test_each_offset_is_read_once_where_something_has_it(start, size, log_start, first, length):
    end, held = start + size, HeldOffsets(first, first + length)
    of_tables, of_logs = divided(start, end, log_start, held, strict=False)
    read = [each for part in (*of_tables, *of_logs) for each in range(*part)]
    there = [
        each for each in range(start, end) if each >= log_start or held.start <= each < held.end
    ]
    assert read == there
