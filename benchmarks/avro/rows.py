"""The rows of the table: what each measures, beside what, and its goal."""

from benchmarks.support.rounds import Goal
from benchmarks.typed.rows import Row

AVRO, FUNCTIONS = "avro", "functions"
"""The sides that take turns: value.format=avro, and from_avro or to_avro."""

SPARK_TWO, SPARK_ALL, SPARK_WRITE = "spark-two", "spark-all", "spark-write"

ROWS = (
    Row(
        "spark-all",
        SPARK_ALL,
        AVRO,
        FUNCTIONS,
        "Spark reads all 20 columns from Avro, rows/s, beside from_avro on Apache Kafka",
        Goal(least=2),
    ),
    Row(
        "spark-two",
        SPARK_TWO,
        AVRO,
        FUNCTIONS,
        "Spark reads 2 of 20 columns, rows/s, beside the same",
        Goal(least=3),
    ),
    Row(
        "spark-write",
        SPARK_WRITE,
        AVRO,
        FUNCTIONS,
        "Spark writes Avro exactly once, rows/s, beside to_avro at least once",
        Goal(least=2),
    ),
)
