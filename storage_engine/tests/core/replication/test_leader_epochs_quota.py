"""KIP-73: a rate holds on average, whatever the size of one answer."""

from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.replication.leader_epochs import ReplicationQuota, ThrottledReplicas


@given(
    st.integers(1, 10**9),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 10**7)), min_size=1, max_size=30),
)
def test_what_is_sent_without_waiting_stays_below_the_rate(rate, turns):
    quota = ReplicationQuota(rate)
    now_ms = sent = largest = 0
    for pause_ms, size in turns:
        now_ms += pause_ms
        if quota.delay_ms(now_ms=now_ms) == 0:
            quota.record(size, now_ms=now_ms)
            sent += size
            largest = max(largest, size)
    assert sent <= rate * (now_ms + 1000) / 1000 + largest + 1


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_after_the_delay_there_is_room_again(rate, size):
    quota = ReplicationQuota(rate)
    quota.record(size, now_ms=0)
    delay_ms = quota.delay_ms(now_ms=0)
    if delay_ms > 2:
        assert quota.delay_ms(now_ms=delay_ms - 2) > 0
    assert quota.delay_ms(now_ms=delay_ms) == 0


def test_replicas_are_named_one_by_one_or_all():
    some = ThrottledReplicas.of(("0:1", "3:2"))
    assert some.covers(0, 1)
    assert some.covers(3, 2)
    assert not some.covers(0, 2)
    assert ThrottledReplicas.of(("*",)).covers(7, 7)
    assert not ThrottledReplicas.of(()).covers(0, 0)
