"""Reads topics as Spark has the format do it, without Spark: planned, and read task by task."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from connector.data_source import HeadraceDataSource
from connector.options.offset_specs import LATEST
from connector.schema import ALL_COLUMNS
from integration_tests.lake.lakes import in_order
from integration_tests.support.cluster_support import HasBootstrapServers
from storage_engine.client import Admin
from storage_engine.client.cluster import Cluster
from storage_engine.core.ids import TopicPartition


class UnitedRead:
    """A batch read that is planned, and whose tasks are still to be read."""

    def __init__(self, cluster: HasBootstrapServers, topic: str, **options: str) -> None:
        source = source_of(cluster, topic, **options)
        self._reader = source.reader(source.schema())
        self.tasks = list(self._reader.partitions())

    def batches(self) -> Iterator[pa.RecordBatch]:
        for each in self.tasks:
            yield from self._reader.read(each)

    def of(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(self._reader.read(task))


def source_of(cluster: HasBootstrapServers, topic: str, **options: str) -> HeadraceDataSource:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    # As Spark gives them.
    return HeadraceDataSource({**given, **{name.lower(): text for name, text in options.items()}})


def read(cluster: HasBootstrapServers, topic: str, **options: str) -> pa.Table:
    """All rows, in the order of partitions; each partition's came in their order."""
    return whole(list(UnitedRead(cluster, topic, **options).batches()))


def whole(batches: list[pa.RecordBatch]) -> pa.Table:
    """The rows of batches, of which those of each partition must be in their order."""
    rows = pa.Table.from_batches(batches)
    names = ("_partition", "_offset") if "_offset" in rows.column_names else ("partition", "offset")
    places = list(zip(*(rows[name].to_pylist() for name in names), strict=True))
    by_partition: dict[int, list[int]] = {}
    for partition, offset in places:
        by_partition.setdefault(partition, []).append(offset)
    for offsets in by_partition.values():
        assert offsets == sorted(set(offsets))
    return in_order(rows, *names)


def cut(cluster: HasBootstrapServers, topic: str, before: dict[int, int]) -> None:
    """Have the logs begin at these offsets, as retention does."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.delete_records({TopicPartition(topic, each): at for each, at in before.items()})


def cut_share(cluster: HasBootstrapServers, topic: str, partitions: int, share: float) -> None:
    """Have the logs lose such a share of the offsets that were ever in them."""
    wanted = {TopicPartition(topic, each): LATEST for each in range(partitions)}
    with Cluster(cluster.bootstrap_servers) as asking:
        ends = asking.list_offsets(wanted, isolation="read_committed")
    cut(cluster, topic, {each.partition: int(share * end) for each, end in ends.items()})


EVERYTHING = {"columns": ",".join(ALL_COLUMNS)}
"""All columns of records."""
