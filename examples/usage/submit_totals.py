"""A job for spark-submit: totals per customer of a topic of orders (key: customer, value: amount),
written to another topic as a whole, and once, however often the job of that number is repeated.

    spark-submit examples/usage/submit_totals.py HOST:PORT orders totals 20260401

Where the package is not installed on the cluster, it travels with the job:

    zip -r headrace.zip connector storage_engine pyspark_headrace
    spark-submit --py-files headrace.zip examples/usage/submit_totals.py …

(pyarrow, numpy and crc32c, which are not pure Python, have to be there.) That is what
`register` is for: Spark does not look for formats in archives.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from connector import register


def main() -> None:
    servers, source, target, job = sys.argv[1:]
    spark = SparkSession.builder.appName("totals").getOrCreate()
    register(spark)
    orders = (
        spark.read.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .load()
    )
    amount = F.expr("cast(cast(value as string) as int)")
    totals = orders.groupBy("key").agg(F.sum(amount).cast("string").alias("value"))
    (
        totals.write.format("headrace")
        .mode("append")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("sinkId", "totals")
        .option("batchId", job)
        .save()
    )
    spark.stop()


if __name__ == "__main__":
    main()
