"""The queries whose output the exactly-once tests judge: from topics of ids to rows that tell which
ids they stand for. Each id comes out once, whatever the batches are.

    copies   stateless                       an id to a row
    random   stateless, not deterministic    the same; values and partitions differ at each replay
    windows  windowed aggregation            the ids of a window and a key, in one row
    join     stream-stream join              ids that are in both topics

Event time follows the ids. Stateful queries end with the id CLOSING, which moves the watermark past
all others and stands for nothing. Source: R-SPARK2.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

PARTITIONS = 3
"""Of the target."""

MS_PER_ID = 100
BASE_MS = 1_700_000_000_000
CLOSING = 10**7

WINDOW = "10 seconds"
LATENESS = "20 seconds"
"""Two hundred ids: more than one source partition is ever ahead of another."""

KEYS = 20


def _ids(records: DataFrame) -> DataFrame:
    ids = records.select(F.expr("cast(cast(value as string) as long)").alias("id"))
    return ids.withColumn("at", F.timestamp_millis(BASE_MS + F.col("id") * MS_PER_ID))


def _rows(frame: DataFrame, ids: Column, rest: Column, partition: Column) -> DataFrame:
    value = F.concat(ids, F.lit(":"), rest)
    return frame.select(value.alias("value"), partition.cast("int").alias("partition"))


def copies(records: DataFrame, _: DataFrame) -> DataFrame:
    """Deterministic: sequence numbers alone would get replays right."""
    ids = _ids(records)
    return _rows(
        ids, F.col("id").cast("string"), F.lit("copy"), F.pmod(F.col("id"), F.lit(PARTITIONS))
    )


def random(records: DataFrame, _: DataFrame) -> DataFrame:
    return _rows(
        _ids(records),
        F.col("id").cast("string"),
        F.rand().cast("string"),
        F.floor(F.rand() * PARTITIONS),
    )


def windows(records: DataFrame, _: DataFrame) -> DataFrame:
    keyed = _ids(records).withWatermark("at", LATENESS)
    groups = keyed.groupBy(F.window("at", WINDOW), F.pmod(F.col("id"), F.lit(KEYS)).alias("key"))
    totals = groups.agg(F.collect_list(F.col("id").cast("string")).alias("ids"))
    return _rows(
        totals,
        F.concat_ws(",", "ids"),
        F.col("window.start").cast("string"),
        F.pmod(F.col("key"), F.lit(PARTITIONS)),
    )


def join(records: DataFrame, others: DataFrame) -> DataFrame:
    left = _ids(records).withWatermark("at", LATENESS)
    right = _ids(others).withWatermark("at", LATENESS)
    right = right.select(F.col("id").alias("other_id"), F.col("at").alias("other_at"))
    near = (
        "id = other_id AND other_at BETWEEN at - INTERVAL 1 SECOND AND at + INTERVAL 1 SECOND"
        f" AND id < {CLOSING}"
    )
    both = left.join(right, F.expr(near))
    return _rows(
        both,
        F.col("id").cast("string"),
        F.lit("both"),
        F.pmod(F.col("id"), F.lit(PARTITIONS)),
    )


QUERIES: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "copies": copies,
    "random": random,
    "windows": windows,
    "join": join,
}

STATEFUL = frozenset({"windows", "join"})
TWO_SOURCES = frozenset({"join"})
SHARES_TASKS = frozenset({"random", "windows"})
"""Their sources have so many partitions that each task reads several."""
