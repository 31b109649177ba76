"""Which segments retention drops: R-LOG9."""

from storage_engine.core.retention import SegmentFacts, count_excess, count_expired

SEGMENTS = [
    SegmentFacts(next_offset=10, size=100, largest_timestamp_ms=1000),
    SegmentFacts(next_offset=20, size=100, largest_timestamp_ms=2000),
    SegmentFacts(next_offset=30, size=100, largest_timestamp_ms=1500),
]


def expired(now_ms: int, high_watermark: int = 30, retention_ms: int = 500) -> int:
    return count_expired(
        SEGMENTS, now_ms=now_ms, retention_ms=retention_ms, high_watermark=high_watermark
    )


def test_segments_go_when_their_newest_record_is_too_old():
    assert expired(1500) == 0
    assert expired(1501) == 1
    assert expired(2501) == 3


def test_an_old_segment_behind_a_young_one_stays():
    assert expired(2200) == 1


def test_what_is_not_committed_stays():
    assert expired(9999, high_watermark=29) == 2
    assert expired(9999, high_watermark=9) == 0


def test_no_time_limit():
    assert expired(9999, retention_ms=-1) == 0


def test_segments_without_time_are_not_expired():
    facts = [SegmentFacts(next_offset=10, size=1, largest_timestamp_ms=-1)]
    assert count_expired(facts, now_ms=9999, retention_ms=1, high_watermark=10) == 0


def test_size_limit_keeps_at_least_that_much():
    def excess(limit: int) -> int:
        return count_excess(SEGMENTS, retention_bytes=limit, high_watermark=30)

    assert [excess(limit) for limit in (300, 299, 200, 199, 100, 0, -1)] == [0, 0, 1, 1, 2, 3, 0]
