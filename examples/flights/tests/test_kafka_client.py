"""JSON records are compared with the first flights of their airport."""

import json

import pyarrow as pa
import pytest

from examples.flights.kafka_client import JsonReading
from examples.flights.schemas import FLIGHTS


def flight(origin, number):
    return {
        **dict.fromkeys(FLIGHTS.arrow.names),
        "origin": origin,
        "scheduled": "2013-01-01T10:15:00.000000Z",
        "carrier": "UA",
        "flight": number,
    }


def reading(*flights):
    return JsonReading([(each["origin"].encode(), json.dumps(each).encode()) for each in flights])


@pytest.fixture
def source():
    """Of two airports, the first of which is EWR."""
    columns = [flight("EWR", 1), flight("JFK", 2), flight("EWR", 3)]
    rows = pa.Table.from_pylist(
        [{**each, "scheduled": None} for each in columns], FLIGHTS.arrow
    ).drop_columns("scheduled")
    times = pa.array(["2013-01-01 10:15:00Z"] * len(columns)).cast(pa.timestamp("us", "UTC"))
    return rows.append_column("scheduled", times)


def test_the_flights_of_the_first_airport_are_exact(source):
    found = reading(flight("EWR", 1), flight("EWR", 3)).compared(source)
    assert (found.exact, found.equal) == (True, 2)


def test_a_flight_that_is_missing_and_one_that_differs_are_named(source):
    wrong = {**flight("EWR", 3), "dep_delay": 9}
    name = "EWR, 2013-01-01 10:15:00+00:00, UA"
    assert reading(flight("EWR", 1)).compared(source).differences == [f"missing: {name}, 3"]
    without_value = JsonReading([*reading(flight("EWR", 1)).records, (b"EWR", b"")])
    assert without_value.compared(source).differences == [f"missing: {name}, 3"]
    assert reading(flight("EWR", 1), wrong).compared(source).differences == [
        f"{name}, 3: dep_delay is 9, should be None"
    ]


def test_the_first_records_are_shown_as_they_are():
    rows = list(reading(*(flight("EWR", number) for number in range(9))).rows())
    assert [key for key, _ in rows] == ["EWR", "EWR"]
    assert json.loads(rows[1][1])["flight"] == 1
