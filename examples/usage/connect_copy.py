"""Spark Connect: copies what is new in a topic to another one, each record once.

    pip install '.[connect]'
    python examples/usage/connect_copy.py sc://HOST:15002 HOST:PORT orders orders-copy

`local[2]` instead of `sc://…` starts a server in this machine. The job has no checkpoint: the
brokers keep, by the origin of the rows, how far the copy is.
"""

import sys

from pyspark.sql import SparkSession

import connector  # noqa: F401  before the session: the workers of local[2] then run this Python


def main() -> None:
    remote, servers, source, target = sys.argv[1:]
    spark = SparkSession.builder.remote(remote).getOrCreate()
    records = (
        spark.read.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .load()
        .select("key", "value", "topic", "partition", "offset")
    )
    (
        records.write.format("headrace")
        .mode("append")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("sinkId", f"{source}-to-{target}")
        .option("idempotentKey", "topic,partition,offset")
        .save()
    )
    print(f"{type(spark).__module__}: {records.count()} records read")
    spark.stop()


if __name__ == "__main__":
    main()
