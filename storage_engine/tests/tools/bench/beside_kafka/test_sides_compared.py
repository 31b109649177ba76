"""What is made of the figures of two sides."""

from benchmarks.beside_kafka.sides_compared import compared, figure_cells, ratio_of
from benchmarks.support.rounds import Goal


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds_and_not_of_the_medians():
    found = compared([100, 300, 200], [50, 300, 400], Goal(least=1.0))
    assert (found["headrace"], found["kafka"], found["ratio"]) == (200, 300, 1.0)
    assert list(found["ratio_spread"]) == [0.5, 2.0]
    assert (found["goal"], found["met"]) == (">= 1.0", True)
    assert ratio_of([1.0], [2.0], None)["met"] is None


def test_a_figure_that_is_not_there_has_empty_cells():
    assert figure_cells(None, None) == (None, None)
    assert figure_cells(200_000.0, (100_000.0, 300_000.0)) == ("200k", "100k-300k")
