"""What a table holds is what a reader of committed records gets of the log, row by row."""

from collections.abc import Iterator

import pytest
from deltalake import DeltaTable

from integration_tests.lake.lakes import (
    TABLE,
    LakeUnderFire,
    assert_equal,
    lakes,
    opaque_log,
    table_at,
    typed_log,
    wait_for_rows,
)
from integration_tests.lake.writers import COLUMNS, DDL, TYPED, rows
from integration_tests.support.cluster_support import create_topic
from storage_engine.client import Admin, NewTopic, Producer


@pytest.fixture
def lake(cluster, tmp_path, topic) -> Iterator[LakeUnderFire]:
    with lakes(cluster, tmp_path, topic) as (made,):
        yield made


def write(cluster, topic, count, *, first=0, partitions=3, **settings):
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings}) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def test_creating_a_topic_is_all_that_one_does(cluster, lake, topic):
    create_topic(cluster, topic, partitions=3, config=TABLE)
    write(cluster, topic, 300)
    place = lake.root / topic
    wait_for_rows(place, 300, lake)
    write(cluster, topic, 100, first=300)
    wait_for_rows(place, 400, lake)
    assert_equal(table_at(place), opaque_log(cluster, topic))
    assert lake.end() == 0
    assert_equal(table_at(place), opaque_log(cluster, topic))


def test_headers_keys_and_times_are_kept(cluster, lake, topic):
    create_topic(cluster, topic, config=TABLE)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send(topic, b"v", key=b"k", headers=[("a", b"x"), ("a", None)], timestamp_ms=7)
        producer.send(topic, None, key=b"gone", timestamp_ms=0)
        producer.send(topic, b"", key=None)
    place = lake.root / topic
    wait_for_rows(place, 3, lake)
    table = table_at(place)
    assert_equal(table, opaque_log(cluster, topic))
    assert table["key"].to_pylist() == [b"k", b"gone", None]
    assert table["value"].to_pylist() == [b"v", None, b""]


def test_aborted_transactions_leave_nothing_in_the_table(cluster, lake, topic):
    create_topic(cluster, topic, partitions=2, config={**TABLE, **TYPED})
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic}
    with Producer(settings) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send_table(topic, rows(number * 100, 100))
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    place = lake.root / topic
    wait_for_rows(place, 300, lake)
    assert_equal(table_at(place), typed_log(cluster, topic, COLUMNS))


def test_a_topic_with_a_key_tells_of_keys_that_are_gone(cluster, lake, topic):
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        new = NewTopic(name=topic, partitions=1, configs=TABLE)
        admin.create_topics([new], schema="id BIGINT, name STRING", key=["id"])
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send(topic, b'{"id": 1, "name": "a"}')
        producer.send(topic, None, key=b"1")
    place = lake.root / topic
    wait_for_rows(place, 2, lake)
    table = table_at(place)
    assert_equal(table, typed_log(cluster, topic, ("id", "name"), gone=True))
    assert table["_deleted"].to_pylist() == [False, True]
    assert table["name"].to_pylist() == ["a", None]


def test_a_new_column_of_the_topic_is_one_of_the_table(cluster, lake, topic):
    create_topic(cluster, topic, config={**TABLE, **TYPED})
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with Producer(servers) as producer:
        producer.send_table(topic, rows(0, 10))
    place = lake.root / topic
    wait_for_rows(place, 10, lake)
    with Admin(servers) as admin:
        admin.alter_schema(topic, f"{DDL}, note STRING")
    with Producer(servers) as producer:
        producer.send(topic, b'{"id": 10, "note": "new"}')
        producer.send_table(topic, rows(11, 10))
    wait_for_rows(place, 21, lake)
    log = typed_log(cluster, topic, (*COLUMNS, "note"))
    assert_equal(table_at(place).select(log.column_names), log)


def test_files_are_divided_by_columns_and_days(cluster, lake, topic):
    config = {**TABLE, **TYPED, "headrace.table.partition.by": "name,_date"}
    create_topic(cluster, topic, config=config)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send_table(topic, rows(0, 50))
    place = lake.root / topic
    wait_for_rows(place, 50, lake)
    log = typed_log(cluster, topic, COLUMNS)
    assert_equal(table_at(place).select(log.column_names), log)
    assert DeltaTable(str(place)).metadata().partition_columns == ["name", "_date"]
