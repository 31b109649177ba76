"""The rounds of a benchmark of Spark: whose turn it is, and what counts."""

import argparse
from typing import Any

import pytest

from benchmarks.support.spark_session import SparkBench, add_spark_numbers


def given(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_spark_numbers(parser, ("--rounds", 3, "rounds"))
    return parser.parse_args(arguments)


def test_each_side_is_first_in_every_other_round_and_rounds_that_warm_up_do_not_count():
    order: list[str] = []
    said: list[str] = []
    spark: Any = None
    bench = SparkBench(spark, "servers", given("--warm-up-rounds", "1"), said.append)

    def measured(side: str) -> list[int]:
        order.append(side)
        return [len(order), len(order)]

    found = bench.by_turns("read", "ms", {each: lambda each=each: measured(each) for each in "ab"})
    assert order == ["b", "a", "a", "b", "b", "a", "a", "b"]
    assert found == {"a": [3, 3, 6, 6, 7, 7], "b": [4, 4, 5, 5, 8, 8]}
    assert said[0] == "read, round 1: a 3.0 ms" and len(said) == 6


def test_there_may_be_no_round_to_warm_up_but_one_that_counts():
    assert given("--warm-up-rounds", "0").warm_up_rounds == 0
    for wrong in (["--rounds", "0"], ["--warm-up-rounds", "-1"]):
        with pytest.raises(SystemExit):
            given(*wrong)
