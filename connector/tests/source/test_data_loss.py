"""Records that a query has to read and that are gone."""

from dataclasses import replace
from uuid import UUID

import pytest

from connector.errors import DataLossError
from connector.options.offset_specs import EARLIEST
from connector.source.data_loss import clip_to_logs, keep_existing
from connector.source.offset_range import OffsetRange
from storage_engine.core.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Logs:
    """Each log begins at offset 10."""

    def offsets_at(self, timestamps_ms):
        assert set(timestamps_ms.values()) <= {EARLIEST}
        return dict.fromkeys(timestamps_ms, 10)


def _range(start_offset, end_offset):
    return OffsetRange(topic_partition=T0, start_offset=start_offset, end_offset=end_offset)


def test_a_range_whose_beginning_is_gone_is_a_loss_or_begins_later():
    with pytest.raises(DataLossError, match="offset 4 of t-0 is wanted, but the log begins at 10"):
        clip_to_logs([_range(4, 15)], Logs(), fail_on_data_loss=True)
    assert clip_to_logs([_range(4, 15)], Logs(), fail_on_data_loss=False) == [_range(10, 15)]
    assert clip_to_logs([_range(4, 8)], Logs(), fail_on_data_loss=False) == []
    assert clip_to_logs([_range(12, 15)], Logs(), fail_on_data_loss=True) == [_range(12, 15)]


def test_ranges_of_partitions_that_are_gone_and_of_topics_created_again_are_losses():
    known = replace(_range(0, 5), topic_id=UUID(int=1))
    assert keep_existing([known], [T0], {"t": UUID(int=1)}) == ([known], [])
    assert keep_existing([known], [T0], {}) == ([known], [])
    assert keep_existing([_range(0, 5)], [T0], {"t": UUID(int=2)}) == ([_range(0, 5)], [])
    assert keep_existing([known], [T1], {"t": UUID(int=1)}) == (
        [],
        ["t-0, wanted from offset 0 to 5, is gone"],
    )
    assert keep_existing([known], [T0], {"t": UUID(int=2)}) == (
        [],
        ["t-0 is wanted from offset 0 to 5, but its topic was deleted and created again since"],
    )
