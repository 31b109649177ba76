"""The verdict is exact only when all comparisons are, and names what is wrong."""

import pyarrow as pa

from examples.flights import report
from examples.flights.proof import RESULT_SCHEMA, Comparison
from examples.flights.report import Findings

GOOD = Comparison(expected=3, equal=3, differences=[])
BAD = Comparison(expected=1000, equal=999, differences=["missing: EWR, 2013-01-01 06:00:00"])


def findings(*, flights=GOOD, weather=GOOD, json=GOOD, results=GOOD, doubled_inputs=0, doubled=0):
    return Findings(
        flights=flights,
        weather=weather,
        json=json,
        results=results,
        records={},
        closing={},
        doubled_inputs=doubled_inputs,
        doubled=doubled,
        latest_results=pa.Table.from_pylist([], RESULT_SCHEMA),
    )


def test_all_equal_is_exact():
    good = findings()
    assert good.exact
    assert list(report.verdict(good)) == [
        "exact: 3 of 3 flights and 3 of 3 weather reports stand in the log as in the source file;"
        " doubled: 0",
        "exact: 3 of 3 flights that a client of Kafka's read as JSON records are those of the"
        " source file",
        "exact: 3 of 3 results (airport, hour) are equal to those computed directly from the"
        " source file; lost: 0, doubled: 0",
    ]


def test_any_difference_is_wrong_and_named():
    for name in ("flights", "weather", "json", "results"):
        wrong = findings(**{name: BAD})
        lines = list(report.verdict(wrong))
        assert not wrong.exact
        assert all(line.startswith("WRONG: ") for line in lines[:3])
        assert lines[3].endswith("missing: EWR, 2013-01-01 06:00:00")


def test_a_row_too_many_is_wrong_though_all_expected_are_there():
    surplus = Comparison(expected=3, equal=3, differences=["not expected: LGA"])
    assert not findings(results=surplus).exact


def test_a_result_that_stands_in_the_log_twice_is_wrong():
    wrong = findings(doubled=2)
    assert not wrong.exact
    assert list(report.verdict(wrong))[2].startswith("WRONG: 3 of 3 results")
    assert list(report.verdict(wrong))[2].endswith("lost: 0, doubled: 2")


def test_a_flight_that_stands_in_the_log_twice_is_wrong():
    wrong = findings(doubled_inputs=1)
    assert not wrong.exact
    assert next(iter(report.verdict(wrong))).startswith("WRONG: 3 of 3 flights")
    assert next(iter(report.verdict(wrong))).endswith("; doubled: 1")
