"""The job's stream, over files instead of topics, ends with the results of the proof."""

import datetime
import os
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from examples.flights import dataset, job, proof

DAYS = 40
FILES = 4
START = pa.scalar(1_357_020_000, pa.timestamp("s"))  # 2013-01-01 06:00 UTC
END = pa.scalar(START.value + DAYS * 24 * 3600, pa.timestamp("s"))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark():
    # The JVM outlives the session, and Spark's workers of later tests have its environment.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def flights():
    table = dataset.flights()
    return table.filter(pc.less(table["scheduled"], END))


@pytest.fixture(scope="module")
def weather():
    table = dataset.weather()
    return table.filter(pc.less(table["observed"], END))


def stream(spark, directory, *topics):
    """A stream of the records, a file for each micro-batch, and a last one that only has a time."""
    directory.mkdir()
    parts = [
        pa.table(
            {
                "value": records.values,
                "timestamp": records.timestamps_ms.cast(pa.timestamp("ms")).cast(
                    pa.timestamp("us", "UTC")
                ),
            }
        )
        for records in topics
    ]
    table = pa.concat_tables(parts).sort_by("timestamp")
    rows = len(table) // FILES + 1
    for number in range(FILES):
        part = table.slice(number * rows, rows)
        pyarrow.parquet.write_table(part, directory / f"{number}.parquet")
    closing = {"value": None, "timestamp": END.as_py() + datetime.timedelta(days=15)}
    table = pa.Table.from_pylist([closing], table.schema)
    pyarrow.parquet.write_table(table, directory / f"{FILES}.parquet")
    reader = spark.readStream.schema("value binary, timestamp timestamp")
    return reader.option("maxFilesPerTrigger", 1).parquet(str(directory))


def test_every_hour_is_written_once_with_its_result_and_no_row_is_late(
    spark, tmp_path, flights, weather
):
    written = []
    records = stream(
        spark,
        tmp_path / "records",
        dataset.flight_records(flights),
        dataset.weather_records(weather),
    )
    query = (
        job.delays(records)
        .writeStream.foreachBatch(lambda frame, _: written.append(frame.toArrow()))
        .outputMode("append")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert sum(len(batch) > 0 for batch in written) > 2
    rows = pa.concat_tables(written).combine_chunks()
    results = proof.parse(rows["value"].combine_chunks().cast(pa.binary()), proof.RESULT_SCHEMA)
    expected = proof.expected_results(flights, weather)
    assert len(results) == len(expected)
    assert proof.compare(expected, results, proof.RESULT_KEY).differences == []
    late = [
        state.numRowsDroppedByWatermark
        for progress in query.recentProgress
        for state in progress.stateOperators
    ]
    assert sum(late) == 0
