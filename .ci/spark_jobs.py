"""Jobs that load the classes that most tests load, for the archive of spark_home.py: a format in
Python is read and written, in batches and as a stream.
"""

from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType


class Reader(DataSourceReader, DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"0": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"0": 10}

    def partitions(self, *bounds: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes, str, int]]:
        yield from ((b"%d" % number, "topic", number) for number in range(100))


class Writer(DataSourceWriter, DataSourceStreamWriter):
    def write(self, rows: Iterator[Row]) -> WriterCommitMessage:
        list(rows)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], *batch: int) -> None:
        """Keep nothing."""


class Numbers(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "value binary, topic string, offset bigint"

    def reader(self, schema: StructType) -> Reader:
        return Reader()

    def streamReader(self, schema: StructType) -> Reader:
        return Reader()

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        return Writer()

    def streamWriter(self, schema: StructType, overwrite: bool) -> Writer:
        return Writer()


def batches(spark: SparkSession) -> None:
    rows = spark.read.format("numbers").load()
    rows.where("offset > 5").orderBy("offset").select("value").collect()
    rows.groupBy("topic").agg(F.sum("offset"), F.countDistinct("value")).collect()
    rows.write.format("numbers").mode("append").save()
    made = spark.createDataFrame([("a", 1), ("b", None)], "name string, number int")
    made.join(spark.range(3), made.number == F.col("id"), "left").toJSON().collect()


def streams(spark: SparkSession) -> None:
    def keep(batch: DataFrame, number: int) -> None:
        batch.write.format("numbers").mode("append").save()

    stream = spark.readStream.format("numbers").load()
    totals = stream.groupBy("topic").count()
    for name, writer in {
        "sink": stream.writeStream.format("numbers"),
        "each": totals.writeStream.foreachBatch(keep).outputMode("update"),
    }.items():
        checkpoint = str(Path.cwd() / name)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()


if __name__ == "__main__":
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(Numbers)
    batches(session)
    streams(session)
    session.stop()
