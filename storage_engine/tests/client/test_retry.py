"""The pauses between attempts: short in the first second, spread later (R-REP12)."""

from storage_engine.client import retry


def test_the_first_second_of_retries_has_pauses_of_at_most_50_ms():
    pauses = [retry.pause_ms(attempt) for attempt in range(retry.QUICK_TRIES + 1)]
    assert max(pauses) <= 50
    assert 500 <= sum(pauses) <= 1_000


def test_later_retries_are_spread_and_at_most_half_a_second_apart():
    later = [retry.pause_ms(attempt) for attempt in range(30, 130)]
    assert max(later) <= retry.MAX_PAUSE_MS
    assert min(later) >= retry.MAX_PAUSE_MS // 2
    assert len(set(later)) > 20
