"""One read over table and log beside a read of the log, in one session of Spark.

Two topics have the same rows. Of one, 95 % are in its table, and no longer in its log.
"""

import os
import time
from collections.abc import Callable, Iterator

from benchmarks.lake.lakes import Lakes, rows_in, wait_for
from benchmarks.support.rounds import Goal, Result, by_turns, compared
from benchmarks.support.spark_session import bench_session
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import report_line

UNION_GOAL = Goal(least=0.8)
IN_TABLE = 0.95
FEW_COLUMNS = "id,_partition,_offset"


def united_reads(lakes: Lakes, rows: int, rounds: int) -> Iterator[Result]:
    """Measure reads of all columns and of a few."""
    servers, root = lakes.brokers.bootstrap_servers, lakes.folder / "union"
    whole, united = "union-log", "union-table"
    report_line(f"union: {rows} rows are written twice")
    _fill(servers, whole, 0, rows)
    old = int(rows * IN_TABLE)
    _fill(servers, united, 0, old)
    with lakes.running(root, cores=os.cpu_count() or 1):
        wait_for(lambda: rows_in(root / united) >= old, f"{old} rows")
    _forget(servers, united)
    _fill(servers, united, old, rows)
    with bench_session("union") as spark:

        def reading(topic: str, **options: str) -> Callable[[], float]:
            def read() -> float:
                reader = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
                frame = reader.options(subscribe=topic, **options).load()
                begun = time.monotonic()
                frame.write.format("noop").mode("overwrite").save()
                return rows / (time.monotonic() - begun)

            return read

        table = {"table": str(root / united)}
        reader = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
        found = reader.options(subscribe=united, **table).load().count()
        if found != rows:
            raise CommandError(f"table and log have {found} rows where {rows} were written")
        for what, options in (("all columns", {}), ("three columns", {"columns": FEW_COLUMNS})):
            ours, theirs = by_turns(
                reading(united, **table, **options), reading(whole, table="none", **options), rounds
            )
            name = f"union: {what}, rows/s, beside the log alone"
            yield compared(name, ours, theirs, goal=UNION_GOAL)


def _fill(servers: str, topic: str, first: int, end: int) -> None:
    from benchmarks.typed.columns import made_of
    from benchmarks.typed.topics import create_typed
    from storage_engine.client import Producer
    from storage_engine.client.admin.topics import alter_topic_configs
    from storage_engine.client.cluster import Cluster

    if not first:
        create_typed(servers, topic)
        if topic.endswith("-table"):
            with Cluster(servers) as cluster:
                alter_topic_configs(cluster, topic, {"headrace.table.format": "delta"})
    with Producer({"bootstrap.servers": servers}) as producer:
        for piece in made_of(first, end - first):
            producer.send_table(topic, piece)
        producer.flush()


def _forget(servers: str, topic: str) -> None:
    """Delete all records of the log."""
    from benchmarks.typed.topics import PARTITIONS
    from storage_engine.client import Admin
    from storage_engine.core.ids import TopicPartition

    with Admin({"bootstrap.servers": servers}) as admin:
        admin.delete_records({TopicPartition(topic, each): -1 for each in range(PARTITIONS)})
