"""The job's stream, over files instead of topics, ends with the results of the proof. By default
the demo's test, whose results come of the same stream, holds that."""

import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

from examples.flights import dataset, job, proof
from examples.flights.schemas import FLIGHTS, WEATHER
from storage_engine.tests.sampling import in_full

DAYS = 40
FILES = 4
END = pa.scalar(
    datetime.datetime(2013, 1, 1, 6, tzinfo=datetime.UTC) + datetime.timedelta(days=DAYS)
)


@pytest.fixture(scope="module")
def flights():
    table = dataset.flights()
    return table.filter(pc.less(table["scheduled"], END))


@pytest.fixture(scope="module")
def weather():
    table = dataset.weather()
    return table.filter(pc.less(table["observed"], END))


def stream(spark, directory, table, topic):
    """A stream of the rows, a file for each micro-batch, and a last one that only has a time."""
    directory.mkdir()
    table = table.select(topic.arrow.names)
    rows = len(table) // FILES + 1
    for number in range(FILES):
        part = table.slice(number * rows, rows)
        pyarrow.parquet.write_table(part, directory / f"{number}.parquet")
    closing = {"origin": "", topic.time: END.as_py() + datetime.timedelta(days=15)}
    table = pa.Table.from_pylist([closing], table.schema)
    pyarrow.parquet.write_table(table, directory / f"{FILES}.parquet")
    reader = spark.readStream.schema(topic.ddl)
    return reader.option("maxFilesPerTrigger", 1).parquet(str(directory))


@in_full
def test_every_hour_is_written_once_with_its_result_and_no_row_is_late(
    spark, tmp_path, flights, weather
):
    written = []
    departures = stream(spark, tmp_path / "flights", flights, FLIGHTS)
    reports = stream(spark, tmp_path / "weather", weather, WEATHER)
    query = (
        job.delays(
            departures.select(job.FLIGHT_COLUMNS.split(",")),
            reports.select(job.WEATHER_COLUMNS.split(",")),
        )
        .writeStream.foreachBatch(lambda frame, _: written.append(frame.toArrow()))
        .outputMode("append")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    assert sum(len(batch) > 0 for batch in written) > 2
    results = pa.concat_tables(written)
    assert results.schema.names == proof.RESULT_SCHEMA.names
    assert results.schema.types == proof.RESULT_SCHEMA.types
    expected = proof.expected_results(flights, weather)
    assert len(results) == len(expected)
    assert proof.compare(expected, results, proof.RESULT_KEY).differences == []
    late = [
        state.numRowsDroppedByWatermark
        for progress in query.recentProgress
        for state in progress.stateOperators
    ]
    assert sum(late) == 0
