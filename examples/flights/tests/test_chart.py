"""The chart shows means over departures, not over hours."""

import pyarrow as pa

from examples.flights import chart, proof


def result(departed, delay_minutes):
    return {
        "airport": "JFK",
        "hour_of_day": 7,
        "departed": departed,
        "delay_minutes": delay_minutes,
    }


def test_means_weigh_every_departure_the_same():
    results = pa.Table.from_pylist([result(300, 3000), result(100, 0)], proof.RESULT_SCHEMA)
    assert chart.by_hour_of_day(results).to_pylist() == [
        {"airport": "JFK", "hour_of_day": 7, "departed": 400, "mean_delay": 7.5}
    ]


def test_the_chart_is_written_as_png(tmp_path):
    results = pa.Table.from_pylist([result(300, 3000)], proof.RESULT_SCHEMA)
    chart.draw(results, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
