"""Compaction's choice of segments and records, and its moment: R-LOG10, KIP-58, KIP-354."""

import numpy as np
import pytest

from storage_engine.core.retained.retention import (
    NO_HORIZON,
    CompactionRules,
    SegmentSpan,
    group_segments,
    kept_records,
    new_delete_horizon,
    plan_compaction,
    tombstones_are_due,
)

RULES = CompactionRules(
    min_dirty_ratio=0.5, min_lag_ms=0, max_lag_ms=1 << 62, delete_retention_ms=1000
)
SPANS = [SegmentSpan(10 * number, 10 * number + 10, 100, 1000 * number) for number in range(6)]


def plan(first_dirty, safe=60, *, first_ms=-1, now_ms=10_000, **rules):
    return plan_compaction(
        SPANS,
        first_dirty_offset=first_dirty,
        safe_offset=safe,
        first_dirty_timestamp_ms=first_ms,
        rules=CompactionRules(**{**{n: getattr(RULES, n) for n in RULES.__slots__}, **rules}),
        now_ms=now_ms,
    )


def test_a_pass_is_due_when_more_than_the_ratio_is_dirty():
    assert plan(20).dirty_ratio == pytest.approx(4 / 6)
    assert plan(30) is None
    assert plan(40) is None


def test_segments_that_are_not_safe_throughout_wait():
    assert plan(0, 59).first_uncleanable_offset == 50
    assert plan(0, 9) is None


def test_a_segment_that_is_dirty_from_its_middle_on_counts_as_dirty():
    assert plan(25, min_dirty_ratio=0).dirty_ratio == pytest.approx(4 / 6)


def test_records_younger_than_the_minimum_lag_wait():
    assert plan(0, min_lag_ms=7000, now_ms=10_000).first_uncleanable_offset == 40
    assert plan(0, min_lag_ms=10_001, now_ms=10_000) is None


def test_an_overdue_record_asks_for_a_pass_whatever_the_ratio():
    assert plan(50, first_ms=4000, max_lag_ms=6000) is None
    found = plan(50, first_ms=3999, max_lag_ms=6000)
    assert found.is_overdue
    assert found.urgency > plan(20).urgency


def test_nothing_dirty_is_never_overdue():
    assert plan(60, first_ms=0, max_lag_ms=1) is None


def test_segments_are_joined_up_to_a_size_and_a_range_of_offsets():
    groups = group_segments(SPANS, max_bytes=250, max_offsets=1 << 31)
    assert groups == [slice(0, 2), slice(2, 4), slice(4, 6)]
    assert group_segments(SPANS, max_bytes=1000, max_offsets=29) == [slice(0, 3), slice(3, 6)]
    assert group_segments(SPANS[:1], max_bytes=1, max_offsets=1) == [slice(0, 1)]
    assert group_segments([], max_bytes=1, max_offsets=1) == []


def test_the_newest_record_stays_and_tombstones_until_they_are_due():
    kept = kept_records(
        offsets=np.array([1, 2, 3, 4, 5]),
        newest_offsets=np.array([3, 2, -1, -1, 5]),
        is_tombstone=np.array([False, True, True, False, True]),
        tombstone_is_due=np.array([True, False, True, True, False]),
    )
    assert kept.tolist() == [False, True, False, True, True]


def test_tombstones_are_due_at_their_horizon_once_they_have_one():
    horizon = new_delete_horizon(500, RULES)
    assert not tombstones_are_due(horizon, 1499)
    assert tombstones_are_due(horizon, 1500)
    assert not tombstones_are_due(NO_HORIZON, 1 << 62)
