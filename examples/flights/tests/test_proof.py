"""The proof finds every kind of difference, and none where there is none."""

import datetime
import json

import pyarrow as pa
import pytest

from examples.flights import proof

SIX = datetime.datetime(2013, 1, 1, 6, tzinfo=datetime.UTC)
SEVEN = datetime.datetime(2013, 1, 1, 7, tzinfo=datetime.UTC)


@pytest.fixture
def flights():
    return pa.table(
        {
            "origin": ["EWR", "EWR", "JFK"],
            "time_hour": pa.array([SIX, SIX, SIX], pa.timestamp("s", "UTC")),
            "hour": [1, 1, 1],
            "dep_delay": pa.array([4, None, None], pa.int64()),
        }
    )


@pytest.fixture
def weather():
    return pa.table(
        {
            "origin": ["EWR", "LGA"],
            "time_hour": pa.array([SIX, SEVEN], pa.timestamp("s", "UTC")),
            "hour": [1, 2],
            "temp": [39.02, None],
            "wind_speed": [10.357019999999999, 0.0],
            "precip": [0.0, 0.0],
            "visib": [10.0, 10.0],
        }
    )


def results(*rows):
    return pa.Table.from_pylist(list(rows), proof.RESULT_SCHEMA)


def row(airport, delay_minutes, *, hour=SIX):
    return {"airport": airport, "hour": hour, "delay_minutes": delay_minutes}


def test_an_hour_has_a_result_for_its_flights_or_its_weather(flights, weather):
    found = proof.expected_results(flights, weather).sort_by("airport").to_pylist()
    assert found == [
        {
            "airport": "EWR",
            "hour": SIX,
            "hour_of_day": 1,
            "flights": 2,
            "departed": 1,
            "delay_minutes": 4,
            "mean_delay": 4.0,
            "max_delay": 4,
            "temp": 39.02,
            "wind_speed": 10.357019999999999,
            "precip": 0.0,
            "visib": 10.0,
        },
        {
            **dict.fromkeys(proof.RESULT_SCHEMA.names),
            "airport": "JFK",
            "hour": SIX,
            "hour_of_day": 1,
            "flights": 1,
            "departed": 0,
        },
        {
            **dict.fromkeys(proof.RESULT_SCHEMA.names),
            "airport": "LGA",
            "hour": SEVEN,
            "hour_of_day": 2,
            "flights": 0,
            "departed": 0,
            "wind_speed": 0.0,
            "precip": 0.0,
            "visib": 10.0,
        },
    ]


def test_equal_tables_are_exact_in_any_order_and_with_repeats():
    expected = results(row("EWR", 4), row("JFK", None))
    found = results(row("JFK", None), row("EWR", 4), row("EWR", 4))
    comparison = proof.compare(expected, found, proof.RESULT_KEY)
    assert (comparison.exact, comparison.equal) == (True, 2)


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        (results(row("EWR", 4)), "missing: JFK, 2013-01-01 06:00:00+00:00"),
        (
            results(row("EWR", 4), row("JFK", None), row("LGA", 1)),
            "not expected: LGA, 2013-01-01 06:00:00+00:00",
        ),
        (
            results(row("EWR", 5), row("JFK", None)),
            "EWR, 2013-01-01 06:00:00+00:00: delay_minutes is 5, should be 4",
        ),
        (
            results(row("EWR", 4), row("JFK", 0)),
            "JFK, 2013-01-01 06:00:00+00:00: delay_minutes is 0, should be None",
        ),
    ],
)
def test_a_difference_is_named(found, difference):
    expected = results(row("EWR", 4), row("JFK", None))
    comparison = proof.compare(expected, found, proof.RESULT_KEY)
    assert (comparison.exact, comparison.differences) == (False, [difference])


def test_a_second_different_row_of_a_key_is_not_exact():
    expected = results(row("EWR", 4))
    found = results(row("EWR", 4), row("EWR", 5))
    assert not proof.compare(expected, found, proof.RESULT_KEY).exact


def test_the_latest_row_of_a_key_is_its_last():
    found = results(
        row("EWR", 1), row("JFK", 2), row("EWR", 3), row("EWR", 4, hour=SEVEN), row("JFK", 5)
    )
    latest = proof.latest_by_key(found, proof.RESULT_KEY)
    assert latest.schema == proof.RESULT_SCHEMA
    assert sorted(latest["delay_minutes"].to_pylist()) == [3, 4, 5]


def test_keys_that_come_again_are_counted():
    def repeats(*rows):
        return proof.repeats(results(*rows), proof.RESULT_KEY)

    assert repeats(row("EWR", 1), row("JFK", 1), row("EWR", 1, hour=SEVEN)) == 0
    assert repeats(row("EWR", 1), row("JFK", 1), row("EWR", 2), row("EWR", 3)) == 2


def test_values_are_parsed_to_the_last_digit():
    value = json.dumps(
        {"airport": "EWR", "hour": "2013-01-01T06:00:00.000000Z", "temp": 10.357019999999999}
    )
    schema = pa.schema([proof.RESULT_SCHEMA.field(name) for name in ("airport", "hour", "temp")])
    assert proof.parse(pa.array([value.encode()]), schema).to_pylist() == [
        {"airport": "EWR", "hour": SIX, "temp": 10.357019999999999}
    ]
