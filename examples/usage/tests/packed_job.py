"""A job for spark-submit that comes with the package, `packed_job.py SERVERS TOPIC FOLDER`: writes
ten rows to TOPIC by a batch and ten by a stream, and copies what it has to `TOPIC-copy` by a stream
that reads.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from connector import register


def run_to_its_end(writer: DataStreamWriter, servers: str, topic: str, checkpoint: Path) -> None:
    writer = writer.format("headrace").option("kafka.bootstrap.servers", servers)
    writer = writer.option("topic", topic).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    servers, topic, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    spark = SparkSession.builder.appName("packed").getOrCreate()
    register(spark)
    rows = spark.range(10).selectExpr("cast(id as string) as value")
    writer = rows.write.format("headrace").option("kafka.bootstrap.servers", servers)
    writer.option("topic", topic).mode("append").save()
    rows.write.json(str(folder / "in"))
    stream = spark.readStream.schema("value STRING").json(str(folder / "in"))
    run_to_its_end(stream.writeStream, servers, topic, folder / "write")
    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", servers)
    records = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
    run_to_its_end(records.select("value").writeStream, servers, f"{topic}-copy", folder / "copy")
    read = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    assert read.option("subscribe", f"{topic}-copy").load().count() == 20
    spark.stop()


if __name__ == "__main__":
    main()
