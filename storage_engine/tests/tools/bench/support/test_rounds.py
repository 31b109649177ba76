"""What benchmarks make of their rounds."""

from benchmarks.support.rounds import Goal, alone, compare


def test_a_comparison_is_the_median_of_the_ratios_of_its_rounds():
    ours, limits = iter([0.0, 1.0, 9.0, 2.0]), iter([1.0, 2.0, 3.0, 4.0])
    found = compare(
        "x", lambda: next(ours), lambda: next(limits), rounds=3, goal=Goal(least=0.6, most=1)
    )
    assert (found.measured, found.limit, found.ratio) == (2.0, 3.0, 0.5)
    assert (found.goal, found.met) == ("0.6 to 1", False)


def test_a_goal_without_a_limit_is_for_the_figure_itself():
    assert alone("x", 5.0, goal=Goal(most=5.0)).met is True
    assert alone("x", 5.1, goal=Goal(most=5.0)).met is False
    assert alone("x", 5.1).met is None
