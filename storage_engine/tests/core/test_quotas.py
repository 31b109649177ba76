"""The rate of a quota: a client that waits as it is told uses all of it."""

import pytest

from storage_engine.core.quotas import TokenBucket, Usage


@pytest.mark.parametrize(
    ("bound", "request_size"),
    [(20_000, 100), (20_000, 10_000), (20_000, 250_000), (1_000_000, 10_000), (1e6, 3_000_000)],
)
def test_a_client_that_waits_as_told_uses_what_it_may(bound: float, request_size: int) -> None:
    usage: Usage[str] = Usage(1.0)
    now_ms, used = 0, 0
    until_s = 120
    while now_ms < until_s * 1000:
        wait_ms = usage.take("alice", bound, request_size, now_ms)
        used += request_size
        now_ms += max(1, wait_ms)
    # One second's worth as a burst; the last request may be more than there is credit for.
    assert bound * until_s - request_size <= used <= bound * (until_s + 1) + request_size


def test_who_waits_as_told_may_go_on() -> None:
    bucket = TokenBucket(10.0, 10, 0)
    bucket.take(1000, 0)
    wait_ms = bucket.wait_ms(0)
    assert wait_ms == pytest.approx(90_000, rel=0.01)
    assert bucket.wait_ms(wait_ms - 100) > 0
    assert bucket.wait_ms(wait_ms) == 0


def test_a_changed_rate_changes_how_long_the_rest_takes() -> None:
    bucket = TokenBucket(100.0, 1, 0)
    bucket.take(1100, 0)
    assert bucket.wait_ms(0) == pytest.approx(10_000, rel=0.01)
    bucket.change_rate(10.0, 0)
    assert bucket.wait_ms(0) == pytest.approx(10_000, rel=0.01)
    bucket.take(10, 0)
    assert bucket.wait_ms(0) == pytest.approx(11_000, rel=0.01)


def test_those_who_share_no_bound_do_not_wait_for_each_other() -> None:
    usage: Usage[str] = Usage(1.0)
    assert usage.take("alice", 10.0, 1000, 0) > 0
    assert usage.take("bob", 10.0, 10, 0) == 0
