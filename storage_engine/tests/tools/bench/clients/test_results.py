"""What the comparison of other people's clients makes of its rounds."""

from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.clients.results import CEILING, result_of
from storage_engine.tests.tools.bench.clients.turns import row_of, turns_of


def test_a_latency_meets_its_goal_when_the_median_ratio_is_at_most_seven_tenths():
    turns = turns_of("requests-100-ack-p50", [2.0, 3.0, 9.0], [4.0, 5.0, 10.0])
    result = result_of(row_of("requests-100-ack-p50"), turns)
    assert [result.headrace, result.kafka] == [3, 5]
    assert [result.ratio, result.goal, result.met] == [0.6, "<= 0.7", True]
    assert result.ratio_spread == (0.5, 0.9)
    assert result.client_alone is None


def test_a_rate_stands_beside_that_of_the_client_alone():
    name = "librdkafka-100-defaults"
    result = result_of(row_of(name), turns_of(name, [300e3], [200e3], 400e3))
    assert [result.ratio, result.met, result.client_alone] == [1.5, False, 400_000]
    assert result.rounds == [{OURS: 300_000, THEIRS: 200_000, CEILING: 400_000}]
