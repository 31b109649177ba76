"""Which segments retention drops: R-LOG9."""

import pytest

from storage_engine.core.retained.retention import (
    DeletionLimits,
    KafkaDeletionPolicy,
    SegmentFacts,
    count_allowed,
    count_excess,
    count_expired,
)

SEGMENTS = [
    SegmentFacts(next_offset=10, size=100, largest_timestamp_ms=1000, written_ms=1000),
    SegmentFacts(next_offset=20, size=100, largest_timestamp_ms=2000, written_ms=2000),
    SegmentFacts(next_offset=30, size=100, largest_timestamp_ms=1500, written_ms=2000),
]


def expired(now_ms: int, retention_ms: int = 500) -> int:
    return count_expired(SEGMENTS, now_ms=now_ms, retention_ms=retention_ms)


def test_segments_go_when_their_newest_record_is_too_old():
    assert expired(1500) == 0
    assert expired(1501) == 1
    assert expired(2501) == 3


def test_an_old_segment_behind_a_young_one_stays():
    assert expired(2200) == 1


def test_what_is_not_committed_stays_whatever_a_policy_wants():
    assert count_allowed(3, SEGMENTS, high_watermark=29) == 2
    assert count_allowed(3, SEGMENTS, high_watermark=9) == 0
    assert count_allowed(99, SEGMENTS, high_watermark=30) == 3
    assert count_allowed(-1, SEGMENTS, high_watermark=30) == 0


def test_no_time_limit():
    assert expired(9999, retention_ms=-1) == 0


@pytest.mark.parametrize("odd_ms", [-1, 1_700_000_000_000_000, (1 << 63) - 1])
def test_a_segment_whose_time_can_not_be_right_ages_from_its_last_write(odd_ms):
    """One record without a time, or in microseconds, keeps neither its segment nor later ones."""
    odd = SegmentFacts(next_offset=10, size=1, largest_timestamp_ms=odd_ms, written_ms=1000)
    later = SegmentFacts(next_offset=20, size=1, largest_timestamp_ms=1100, written_ms=1100)

    def count(now_ms: int) -> int:
        return count_expired([odd, later], now_ms=now_ms, retention_ms=500)

    assert [count(now_ms) for now_ms in (1500, 1501, 1600, 1601)] == [0, 1, 1, 2]


def test_records_that_were_old_when_they_came_are_deleted_by_their_own_time():
    old = SegmentFacts(next_offset=10, size=1, largest_timestamp_ms=5, written_ms=9000)
    assert count_expired([old], now_ms=9001, retention_ms=500) == 1


def test_size_limit_keeps_at_least_that_much():
    def excess(limit: int) -> int:
        return count_excess(SEGMENTS, retention_bytes=limit)

    assert [excess(limit) for limit in (300, 299, 200, 199, 100, 0, -1)] == [0, 0, 1, 1, 2, 3, 0]


def test_the_size_limit_keeps_the_active_segment():
    segments = [*SEGMENTS[:2], SEGMENTS[2]._replace(is_active=True)]
    assert count_excess(segments, retention_bytes=0) == 2


def test_kafkas_policy_takes_what_either_limit_asks_for():
    policy = KafkaDeletionPolicy()

    def count(retention_ms: int, retention_bytes: int) -> int:
        return policy.count_deletable(
            SEGMENTS, DeletionLimits(retention_ms, retention_bytes, now_ms=1501)
        )

    assert [count(500, -1), count(500, 100), count(-1, 200), count(-1, -1)] == [1, 2, 1, 0]
