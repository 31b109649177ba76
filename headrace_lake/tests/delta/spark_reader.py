"""Reads a table by delta-spark, in the Python of that Spark: `spark_reader.py JARS TABLE OUT`.

Writes all rows into the folder OUT as Parquet.
"""

import sys

from pyspark.sql import SparkSession


def main() -> None:
    jars, table, out, *settings = sys.argv[1:]
    builder = SparkSession.builder.master("local[1]").config("spark.jars", jars)
    for each in settings:
        name, _, value = each.partition("=")
        builder = builder.config(name, value)
    rows = builder.getOrCreate().read.format("delta").load(table)
    rows.coalesce(1).write.parquet(out)


if __name__ == "__main__":
    main()
