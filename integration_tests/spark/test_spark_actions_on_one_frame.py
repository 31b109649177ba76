"""One frame of a batch read is filtered, joined, cached and read whole, one action after the other
and two at once. Spark keeps what it has planned of a frame in an object that all its scans share,
so an action may spoil the next. Each one is compared with a reference of plain Python.
"""

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from integration_tests.support.cluster_support import create_topic
from integration_tests.support.spark_support import produce
from storage_engine.tests.sampling import ALL_FAULTS, SEED

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
FRAMES = 100 if ALL_FAULTS else 4
ACTIONS = 5
"""On each frame."""

PARTITIONS, RECORDS = 3, 12
TIME_S = 1_700_000_000

Row = tuple[int, int]
"""Partition and offset."""

Rows = Counter[Row]


@dataclass(frozen=True)
class Condition:
    """What Spark and Python each drop rows by."""

    text: str
    passes: Callable[[Row], bool]


@dataclass(frozen=True)
class Frame:
    """A frame, with the rows that it must have. Its columns are p, o and t."""

    spark: Any
    rows: Rows

    def where(self, condition: Condition) -> "Frame":
        kept = Counter({row: n for row, n in self.rows.items() if condition.passes(row)})
        return Frame(self.spark.where(condition.text), kept)


def _condition(chance: random.Random) -> Condition:
    n = chance.randrange(RECORDS + 1)
    one = chance.randrange(PARTITIONS)
    return chance.choice(
        [
            Condition(f"o < {n}", lambda row: row[1] < n),
            Condition(f"o >= {n}", lambda row: row[1] >= n),
            Condition(f"o = {n}", lambda row: row[1] == n),
            Condition(f"o IN ({n}, {n + 1})", lambda row: row[1] in (n, n + 1)),
            Condition(f"p = {one}", lambda row: row[0] == one),
            Condition(f"p <> {one} AND o < {n}", lambda row: row[0] != one and row[1] < n),
            Condition(f"t >= timestamp_seconds({TIME_S + n})", lambda row: row[1] >= n),
            Condition(f"t < timestamp_seconds({TIME_S + n})", lambda row: row[1] < n),
            Condition(f"p = {one} OR o > {n}", lambda row: row[0] == one or row[1] > n),
            Condition(f"o % 3 = {one}", lambda row: row[1] % 3 == one),
        ]
    )


def _distinct(rows: Rows) -> Rows:
    return Counter(set(rows))


def _union(one: Frame, other: Frame) -> Frame:
    return Frame(one.spark.unionByName(other.spark), one.rows + other.rows)


def _except(one: Frame, other: Frame) -> Frame:
    return Frame(one.spark.subtract(other.spark), Counter(set(one.rows) - set(other.rows)))


def _except_all(one: Frame, other: Frame) -> Frame:
    return Frame(one.spark.exceptAll(other.spark), one.rows - other.rows)


def _intersect(one: Frame, other: Frame) -> Frame:
    return Frame(one.spark.intersect(other.spark), Counter(set(one.rows) & set(other.rows)))


def _join(one: Frame, other: Frame) -> Frame:
    """Each row as often as both have it."""
    kept = Counter({row: n * other.rows[row] for row, n in one.rows.items() if other.rows[row]})
    return Frame(one.spark.join(other.spark.select("p", "o"), ["p", "o"]), kept)


def _anti(one: Frame, other: Frame) -> Frame:
    kept = Counter({row: n for row, n in one.rows.items() if row not in other.rows})
    return Frame(one.spark.join(other.spark.select("p", "o"), ["p", "o"], "left_anti"), kept)


def _in(one: Frame, other: Frame) -> Frame:
    """A subquery in SQL, over views."""
    one.spark.createOrReplaceTempView("one")
    other.spark.createOrReplaceTempView("other")
    offsets = {offset for _, offset in other.rows}
    kept = Counter({row: n for row, n in one.rows.items() if row[1] in offsets})
    session = one.spark.sparkSession
    return Frame(session.sql("SELECT * FROM one WHERE o IN (SELECT o FROM other)"), kept)


def _highest(one: Frame, other: Frame) -> Frame:
    """A scalar subquery."""
    one.spark.createOrReplaceTempView("one")
    other.spark.createOrReplaceTempView("other")
    most = max((offset for _, offset in other.rows), default=-1)
    kept = Counter({row: n for row, n in one.rows.items() if row[1] == most})
    session = one.spark.sparkSession
    return Frame(session.sql("SELECT * FROM one WHERE o = (SELECT max(o) FROM other)"), kept)


BOTH = [_union, _except, _except_all, _intersect, _join, _anti, _in, _highest]


def _built(chance: random.Random, whole: Frame, depth: int) -> Frame:
    """A frame over `whole`, which it names up to `2 ** depth` times."""
    kind = chance.randrange(10)
    if kind < 2 or depth == 0:
        return whole if chance.random() < 0.3 else whole.where(_condition(chance))
    if kind < 5:
        return _built(chance, whole, depth - 1).where(_condition(chance))
    if kind < 6:
        inner = _built(chance, whole, depth - 1)
        return Frame(inner.spark.distinct(), _distinct(inner.rows))
    one, other = _built(chance, whole, depth - 1), _built(chance, whole, depth - 1)
    return chance.choice(BOTH)(one, other)


def _found(frame: Frame) -> Rows:
    return Counter((row.p, row.o) for row in frame.spark.select("p", "o").collect())


def _act(chance: random.Random, whole: Frame) -> None:
    """One action, or two at once, on a frame of which a part may be cached."""
    built = _built(chance, whole, depth=2)
    way = chance.randrange(5)
    if way == 0:
        part = whole.where(_condition(chance))
        part.spark.cache()
        try:
            assert part.spark.count() == part.rows.total()
            assert _found(built) == built.rows
            assert _found(part) == part.rows
        finally:
            part.spark.unpersist(blocking=True)
    elif way == 1:
        beside = _built(chance, whole, depth=1)
        with ThreadPoolExecutor(max_workers=2) as pool:
            found = list(pool.map(_found, [built, beside]))
        assert found == [built.rows, beside.rows]
    elif way == 2:
        assert built.spark.count() == built.rows.total()
    else:
        assert _found(built) == built.rows


def _typed(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """A topic with a schema, of the same rows."""
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).load().selectExpr("p", "o", "t")


def _records(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    frame = reader.option("subscribe", topic).load()
    return frame.selectExpr("partition AS p", "offset AS o", "timestamp AS t")


@pytest.fixture(scope="module")
def topics(spark, cluster):
    """One topic without a schema, one with columns of the same content."""
    name = "actions-on-one-frame"
    create_topic(cluster, name, partitions=PARTITIONS, config={"retention.ms": "-1"})
    rows = [(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)]
    produce(
        cluster.bootstrap_servers,
        name,
        [{"value": b"v", "partition": p, "timestamp": (TIME_S + o) * 1000} for p, o in rows],
        batch_records=4,
    )
    columns = F.timestamp_seconds(F.lit(TIME_S) + F.col("o")).alias("t")
    writer = spark.createDataFrame(rows, "p INT, o BIGINT").select("p", "o", columns).write
    writer = writer.format("headrace").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    writer.option("topic", f"{name}-typed").option("createTopic", "true").mode("append").save()
    return {_records: name, _typed: f"{name}-typed"}, Counter(rows)


@pytest.mark.parametrize("setting", ["true", "false"])
def test_no_action_on_a_frame_changes_what_another_one_finds(spark, servers, topics, setting):
    names, rows = topics
    spark.conf.set(PUSHDOWN, setting)
    try:
        for number in range(FRAMES // 2):
            chance = random.Random(SEED * 10_000 + number * 2 + (setting == "true"))
            read = _typed if number % 2 else _records
            whole = Frame(read(spark, servers, names[read]), rows)
            for _ in range(ACTIONS):
                _act(chance, whole)
    finally:
        spark.conf.unset(PUSHDOWN)


def test_a_frame_reads_up_to_the_ends_of_its_first_action(spark, spark_cluster, servers, topic):
    """The documents say so; a frame that is made again reads what came later."""
    create_topic(spark_cluster, topic)
    produce(servers, topic, [{"value": b"v"}] * 3)
    frame = _records(spark, servers, topic)
    frame.createOrReplaceTempView("once")
    assert frame.count() == 3
    produce(servers, topic, [{"value": b"v"}] * 2)
    counted = [frame.count(), frame.where("o >= 1").count(), spark.table("once").count()]
    assert counted == ([5, 4, 5] if spark.version.startswith("4.0.") else [3, 2, 3])
    assert _records(spark, servers, topic).count() == 5


def test_a_frame_that_was_filtered_is_whole_again(spark, servers, topics):
    names, rows = topics
    spark.conf.set(PUSHDOWN, "true")
    try:
        whole = Frame(_records(spark, servers, names[_records]), rows)
        first = whole.where(Condition("o < 3", lambda row: row[1] < 3))
        rest = whole.where(Condition("o >= 3", lambda row: row[1] >= 3))
        for each in (first, whole, rest, _union(first, rest), _join(whole, first)):
            assert _found(each) == each.rows
    finally:
        spark.conf.unset(PUSHDOWN)
