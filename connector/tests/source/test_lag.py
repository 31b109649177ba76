"""How far a query is behind, from its progress."""

from types import SimpleNamespace

import pytest

from connector.source.lag import LagListener, OffsetsBehindLatest, lag_of, offsets_behind
from storage_engine.core.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

OURS = (
    '{"t": {"0": 9}, "@lag": {"minOffsetsBehindLatest": 1, "maxOffsetsBehindLatest": 3, '
    '"avgOffsetsBehindLatest": 2.0}}'
)
LAG = OffsetsBehindLatest(minimum=1, maximum=3, average=2.0)


def test_a_lag_is_never_negative_and_a_partition_without_position_is_not_behind():
    lag = offsets_behind({T0: 5}, {T0: 3, T1: 8})
    assert lag == OffsetsBehindLatest(minimum=0, maximum=0, average=0.0)
    assert offsets_behind({T0: 5, T1: 8}, {T0: 6, T1: 11}) == LAG


@pytest.mark.parametrize("other", [None, "12", '{"t": {"0": 9}}', "no JSON", '{"@lag": {}}', "[]"])
def test_a_source_of_another_kind_has_no_lag(other):
    assert lag_of(other) is None


def test_a_listener_is_told_the_lag_of_each_source_of_this_format():
    calls = []
    listener = LagListener(lambda progress, lag: calls.append((progress.name, lag)))
    sources = [SimpleNamespace(latestOffset=each) for each in (OURS, "12", OURS)]
    progress = SimpleNamespace(name="orders", sources=sources)
    listener.onQueryProgress(SimpleNamespace(progress=progress))
    assert calls == [("orders", LAG), ("orders", LAG)]
