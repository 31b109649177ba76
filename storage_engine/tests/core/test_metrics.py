"""Figures of a broker: sums that never fall, and times that count for others."""

import pytest

from storage_engine.core.metrics import (
    CODEC_BITS,
    LATENCY_NS,
    FiguresByTopic,
    Histogram,
    RequestFigures,
)


def test_a_value_at_a_bound_is_in_the_bucket_below_it():
    times = Histogram([1, 5])
    for value in (1, 1.5, 5, 6):
        times.observe(value)
    times.observe(2, times=3)
    more = Histogram([1, 5])
    more.observe(9)
    times.add(more)
    assert (times.counts, times.cumulative(), times.total) == ([1, 5, 2], [1, 6, 8], 28.5)


def test_sums_over_topics_do_not_fall_when_a_topics_last_replica_goes():
    figures = FiguresByTopic()
    topic = figures.join("t")
    assert figures.join("t") is topic
    topic.appended(attributes=2, size=100, records=3)
    topic.replicated_in, topic.replicated_out = 5, 7
    figures.leave("t")
    assert figures.by_name == {"t": topic}
    figures.leave("t")
    assert figures.by_name == {}
    gone = figures.gone
    assert gone.bytes_in == [100 if codec == 2 else 0 for codec in range(CODEC_BITS + 1)]
    assert (gone.replicated_in, gone.replicated_out) == (5, 7)
    assert figures.join("t") is not topic, "a topic made anew begins anew"


@pytest.mark.parametrize("took_ns", [0, LATENCY_NS[0], LATENCY_NS[-1], LATENCY_NS[-1] + 1])
def test_the_time_of_a_request_counts_as_an_observation_for_all_that_it_stands_for(took_ns):
    figures = RequestFigures(lambda: 1_000 + took_ns)
    figures.sample_mask = 3
    figures.answered(1_000, figures.weight)
    expected = Histogram(LATENCY_NS)
    expected.observe(took_ns, times=4)
    assert (figures.times.counts, figures.times.total) == (expected.counts, expected.total)
