"""Several frames of one micro-batch for one table, through Spark: each has its part, and two under
one name are an error before the rows of the second. Source: R-SPARK4."""

import contextlib
import sqlite3
from contextlib import closing

import pytest

from connector import KeyedSink
from integration_tests.support.spark_support import QUERY_TIMEOUT_S

ROWS = 6


def test_two_frames_for_one_table_each_have_a_place(spark, tmp_path):
    file, source = tmp_path / "database", str(tmp_path / "source")
    spark.range(ROWS).repartition(1).write.parquet(source)

    def sink(part: str = "") -> KeyedSink:
        return KeyedSink(f"sqlite:///{file}", table="t", key=("id",), part=part)

    def run(write):
        rows = spark.readStream.schema("id bigint").parquet(source)
        query = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        with contextlib.suppress(Exception):
            query.awaitTermination(QUERY_TIMEOUT_S)
        return str(query.exception())

    def found() -> list[int]:
        with closing(sqlite3.connect(file)) as connection:
            return sorted(row for (row,) in connection.execute("select id from t"))

    def under_one_name(frame, number):
        sink()(frame.where("id < 2"), number)
        sink()(frame.where("id >= 2"), number)

    def with_parts(frame, number):
        failing = frame.where("id < 2").selectExpr("if(id = 1, raise_error('no'), id) id")
        with pytest.raises(Exception, match="no"):
            sink("low")(failing, number)
        sink("low")(frame.where("id < 2"), number)
        sink("high")(frame.where("id >= 2"), number)

    for _ in range(2):
        assert "[BATCH_ID_TAKEN] this is a second frame for the table 't'" in run(under_one_name)
        assert found() == [0, 1]
    assert run(with_parts) == "None"
    assert found() == list(range(ROWS))
