"""Clients that we did not write and ours write to one typed topic and read it, while a leader is
killed: all of them see the same rows at the same offsets, each once and in the order of its key.
With HEADRACE_FAULTS=full Kafka's Java client is one of them."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.java_clients import NEWEST, compiled
from integration_tests.typed_topics.everyones_rows import (
    FOREIGN_WRITERS,
    PARTITIONS,
    SCHEMA,
    ByJava,
    ByKcat,
    BySendTable,
    LiveColumns,
    LiveLibrdkafka,
    RowWriter,
    Seen,
    by_aiokafka,
    by_java,
    by_kafka_python,
    by_kcat,
    by_our_poll,
    check_columns_are_the_json,
    check_each_row_is_there_once_and_in_order,
    java_source,
)
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING
from storage_engine.tests.sampling import in_full

TOPIC = "typed-everyones"
BEFORE, AFTER = 25, 25
"""As many rows of each writer come before the kill, and after another leads."""

with_kcat = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


class Told(NamedTuple):
    """What writers and live readers say in the end."""

    servers: str
    ends: list[int]
    written: dict[str, int]
    places: dict[str, dict[int, tuple[int, int]]]
    live: list[Seen]
    columns: list[dict[str, Any]]


@pytest.fixture(scope="module")
def java_path(tmp_path_factory) -> str:
    return compiled(java_source(), NEWEST, tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def told(cluster, request) -> Told:
    kinds: list[type[RowWriter]] = [BySendTable, *FOREIGN_WRITERS]
    if shutil.which("kcat") is None:
        kinds.remove(ByKcat)
    config = {SCHEMA_SETTING: SCHEMA.to_json(), "min.insync.replicas": "2"}
    create_topic(cluster, TOPIC, partitions=PARTITIONS, config=config)
    return written_through_a_kill(cluster, TOPIC, kinds)


def written_through_a_kill(cluster: Any, topic: str, kinds: Sequence[type[RowWriter]]) -> Told:
    servers, client = cluster.bootstrap_servers, admin(cluster)
    for partition in range(PARTITIONS):
        wait_for_isr(client, topic, 3, partition)
    with contextlib.ExitStack() as stack:
        live = stack.enter_context(LiveLibrdkafka(servers, topic))
        columns = stack.enter_context(LiveColumns(servers, topic))
        writers = [stack.enter_context(kind(servers, topic)) for kind in kinds]
        _wait_for_each(writers, BEFORE)
        victim = leader_of(client, topic)
        cluster.kill_broker(victim)
        before = {writer: writer.written for writer in writers}
        _wait_for_each(writers, AFTER, before)
        for writer in writers:
            writer.end()
            writer.check()
        cluster.start_broker(victim)
        count = sum(writer.written for writer in writers)
        for reader in (live, columns):
            wait_until(
                lambda reader=reader: (reader.check(), len(reader.found) >= count)[1],
                f"{type(reader).__name__} has all {count} rows",
            )
    for partition in range(PARTITIONS):
        wait_for_isr(client, topic, 3, partition)
    return Told(
        servers,
        [sum(each.partition == p for each in live.found) for p in range(PARTITIONS)],
        {writer.name: writer.written for writer in writers},
        {writer.name: writer.places for writer in writers if writer.places},
        sorted(live.found, key=lambda each: each[:2]),
        sorted(columns.found, key=lambda each: (each["_partition"], each["_offset"])),
    )


def _wait_for_each(
    writers: Sequence[RowWriter], count: int, before: dict[RowWriter, int] | None = None
) -> None:
    def there() -> bool:
        for writer in writers:
            writer.check()
        return all(
            writer.written >= (before[writer] if before else 0) + count for writer in writers
        )

    wait_until(there, f"every writer has {count} more rows")


def test_each_row_is_there_once_and_in_the_order_of_its_key_whoever_wrote_it(told):
    check_each_row_is_there_once_and_in_order(told.live, told.written)


def test_rows_are_where_their_writers_were_told(told):
    for writer, places in told.places.items():
        expected = {
            (each.partition, each.offset): number for number, each in _numbered(told.live, writer)
        }
        assert {place: number for number, place in places.items()} == expected


def _numbered(seen: Sequence[Seen], writer: str) -> Iterator[tuple[int, Seen]]:
    following = list(range(PARTITIONS))
    for each in seen:
        if each.key.decode().rpartition("-")[0] == writer:
            yield following[each.partition], each
            following[each.partition] += PARTITIONS


def test_columns_are_equal_to_the_json_of_every_row(told):
    check_columns_are_the_json(told.columns, told.live)


READERS: dict[str, Callable[[str, str, Sequence[int]], list[Seen]]] = {
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "kcat": by_kcat,
    "our poll": by_our_poll,
}


@pytest.mark.parametrize(
    "reader", [pytest.param(name, marks=with_kcat if name == "kcat" else ()) for name in READERS]
)
def test_every_client_reads_the_same_bytes_at_the_same_offsets(told, reader):
    found = READERS[reader](told.servers, TOPIC, told.ends)
    assert sorted(found, key=lambda each: each[:2]) == told.live


@in_full
def test_kafkas_java_client_writes_and_reads_beside_a_table_through_a_kill(cluster, java_path):
    topic = f"{TOPIC}-java"
    config = {SCHEMA_SETTING: SCHEMA.to_json(), "min.insync.replicas": "2"}
    create_topic(cluster, topic, partitions=PARTITIONS, config=config)

    class Java(ByJava):
        path = java_path

    told = written_through_a_kill(cluster, topic, [Java, BySendTable])
    check_each_row_is_there_once_and_in_order(told.live, told.written)
    check_columns_are_the_json(told.columns, told.live)
    found = by_java(java_path, told.servers, topic)
    assert sorted(found, key=lambda each: each[:2]) == told.live
    (places,) = told.places.values()
    assert {(s.partition, s.offset): n for n, s in _numbered(told.live, Java.name)} == {
        place: number for number, place in places.items()
    }
