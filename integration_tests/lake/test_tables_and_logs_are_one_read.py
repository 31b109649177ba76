"""Whatever retention takes from a log, a read that names the topic's table has each row once, as it
was in the log."""

import logging
import random
import time

import pytest

from connector.errors import ConnectorError, DataLossError, OptionError
from connector.log_once import _logged
from connector.spark_classes import ReadMaxRows
from headrace_lake.delta.compaction import compact
from headrace_lake.delta.store import TableStore
from headrace_lake.delta.table import LakeTable, LakeTopic
from headrace_lake.protocol.columns import opaque_shape
from integration_tests.lake.lakes import TABLE, assert_equal, lakes, wait_for_rows
from integration_tests.lake.united_reads import (
    EVERYTHING,
    UnitedRead,
    cut,
    cut_share,
    read,
    source_of,
    whole,
)
from integration_tests.lake.writers import TYPED, rows
from integration_tests.support.cluster_support import create_topic, wait_until
from storage_engine.client import Admin, NewTopic, Producer
from storage_engine.tests.sampling import SEED, examples

COUNT = 600
PARTITIONS = 3
FIRST_MS = int(time.time() * 1000) - 3_600_000


@pytest.fixture
def lake(cluster, tmp_path, topic):
    with lakes(cluster, tmp_path, topic) as (made,):
        yield made


def write(cluster, topic, first=0, count=COUNT, partitions=PARTITIONS):
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in range(first, first + count):
            producer.send(
                topic,
                None if number % 11 == 0 else b"%d" % number,
                key=b"k%d" % number,
                headers=[("n", b"%d" % number)] if number % 2 else [],
                timestamp_ms=FIRST_MS + number,
                partition=number % partitions,
            )


def all_in_table(cluster, lake, topic, count=COUNT, partitions=PARTITIONS, **config):
    """A topic of records, all of which are in its table; what a reader of its log gets."""
    create_topic(cluster, topic, partitions=partitions, config={**TABLE, **config})
    write(cluster, topic, 0, count // 2, partitions)
    wait_for_rows(lake.root / topic, count // 2, lake)
    write(cluster, topic, count // 2, count - count // 2, partitions)
    wait_for_rows(lake.root / topic, count, lake)
    return read(cluster, topic, **EVERYTHING)


def test_records_are_read_of_table_and_log_wherever_logs_are_cut(cluster, lake, topic):
    expected = all_in_table(cluster, lake, topic)
    place = {"table": str(lake.root / topic)}
    chance = random.Random(SEED)
    cuts = dict.fromkeys(range(PARTITIONS), 0)
    for _ in range(examples(4)):
        for each, at in cuts.items():
            cuts[each] = chance.randint(at, COUNT // PARTITIONS)
        cut(cluster, topic, cuts)
        assert_equal(read(cluster, topic, **place, **EVERYTHING), expected)
        some = {"columns": "value,partition,offset", "maxRecordsPerPartition": "40"}
        united = UnitedRead(cluster, topic, **place, **some)
        found = whole(list(united.batches()))
        assert_equal(found, expected.select(found.column_names))
        assert all(sum(map(len, united.of(each))) <= 40 for each in united.tasks)


def test_rows_of_typed_topics_are_read_with_columns_and_conditions(cluster, lake, topic):
    create_topic(cluster, topic, partitions=2, config={**TABLE, **TYPED})
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic}
    with Producer(settings) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send_table(topic, rows(number * 100, 100))
            producer.flush()
            if number % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    wait_for_rows(lake.root / topic, 400, lake)
    queries = (
        {"columns": "id,name,fare,tip,at,_topic,_partition,_offset,_timestamp"},
        {"columns": "at,_partition,_offset", "where": "name = 'name 13' AND id >= 100"},
        {"columns": "ID,_offset,_partition", "where": "tip BETWEEN 1.00 AND 2.00"},
    )
    before = [read(cluster, topic, **each) for each in queries]
    assert [len(each) for each in before] == [400, 2, 100]
    for share in (0.01, 0.5, 0.9):
        cut_share(cluster, topic, 2, share)
        for query, expected in zip(queries, before, strict=True):
            assert_equal(read(cluster, topic, table=str(lake.root / topic), **query), expected)
    with pytest.raises(OptionError, match="has no _headers of typed rows"):
        read(cluster, topic, table=str(lake.root / topic), columns="id,_headers")


def test_keys_that_are_gone_are_told_to_those_who_ask(cluster, lake, topic):
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        new = NewTopic(name=topic, partitions=1, configs=TABLE)
        admin.create_topics([new], schema="id BIGINT, took INTERVAL DAY TO SECOND", key=["id"])
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in range(10):
            producer.send(topic, b'{"id": %d, "took": 1000001}' % number)
            producer.send(topic, None, key=b"%d" % number)
    wait_for_rows(lake.root / topic, 20, lake)
    queries = (
        {"columns": "id,took,_deleted,_partition,_offset"},
        {"columns": "took,_partition,_offset"},
        {"columns": "_deleted,_partition,_offset", "where": "id = 7"},
    )
    before = [read(cluster, topic, **each) for each in queries]
    assert [len(each) for each in before] == [20, 10, 2]
    cut(cluster, topic, {0: 15})
    for query, expected in zip(queries, before, strict=True):
        found = read(cluster, topic, table=str(lake.root / topic), **query)
        assert found.schema == expected.schema
        assert_equal(found, expected)


def test_a_log_that_is_cut_between_planning_and_reading_loses_nothing(cluster, lake, topic):
    expected = all_in_table(cluster, lake, topic)
    place = {"table": str(lake.root / topic)}
    cut(cluster, topic, dict.fromkeys(range(PARTITIONS), 20))
    planned = UnitedRead(cluster, topic, **place, **EVERYTHING)
    assert any(isinstance(each.value, tuple) for each in planned.tasks)
    cut(cluster, topic, {0: 30, 1: 199, 2: 200})
    assert_equal(whole(list(planned.batches())), expected)


def test_files_that_are_put_together_and_removed_meanwhile_lose_nothing(cluster, lake, topic):
    expected = all_in_table(cluster, lake, topic)
    cut(cluster, topic, dict.fromkeys(range(PARTITIONS), 150))
    place = lake.root / topic
    planned = UnitedRead(cluster, topic, table=str(place), **EVERYTHING)
    assert lake.end() == 0
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        topic_id = admin.describe_topics([topic])[topic].topic_id
    table = LakeTable.open(
        TableStore(str(place)), LakeTopic(name=topic, topic_id=topic_id), opaque_shape(topic)
    )
    before = {each.path for each in table.files()}
    assert compact(table, whole_tail=True).files_after == 1
    for each in before:
        (place / each).unlink()
    assert_equal(whole(list(planned.batches())), expected)


def stream_of(cluster, topic, **options):
    source = source_of(cluster, topic, startingOffsets="earliest", **options)
    return source.streamReader(source.schema())


def test_a_stream_walks_through_table_and_log_and_goes_on_after_a_restart(cluster, lake, topic):
    expected = all_in_table(cluster, lake, topic)
    place = {"table": str(lake.root / topic), **EVERYTHING}
    cut(cluster, topic, {0: 50, 1: 170, 2: 0})
    stream = stream_of(cluster, topic, **place)
    start, batches, ends = stream.initialOffset(), [], []
    while True:
        end = stream.latestOffset(start, ReadMaxRows(70))
        if end == start:
            break
        tasks = stream.partitions(start, end)
        got = [batch for each in tasks for batch in stream.read(each)]
        assert sum(map(len, got)) <= 70
        batches += got
        start = end
        ends.append(end)
        if len(ends) == 3:
            # Another process goes on from the checkpoint, when more of the log is gone.
            cut(cluster, topic, {0: 100, 1: 180, 2: 130})
            stream = stream_of(cluster, topic, **place)
    assert len(ends) > 5
    assert_equal(whole(batches), expected)


def test_an_offset_or_a_time_that_only_the_table_has_is_a_start(cluster, lake, topic):
    expected = all_in_table(cluster, lake, topic, partitions=1)
    place = {"table": str(lake.root / topic), **EVERYTHING}
    cut(cluster, topic, {0: 400})
    by_offset = read(cluster, topic, startingOffsets=f'{{"{topic}":{{"0":123}}}}', **place)
    assert_equal(by_offset, expected.slice(123))
    for at in (0, 77, 399, 400, 555):
        found = read(cluster, topic, startingTimestamp=str(FIRST_MS + at), **place)
        assert_equal(found, expected.slice(at))
    ended = {"endingOffsets": f'{{"{topic}":{{"0":300}}}}'}
    assert_equal(read(cluster, topic, **ended, **place), expected.slice(0, 300))


def test_what_neither_table_nor_log_has_is_a_loss(cluster, lake, topic, caplog):
    expected = all_in_table(cluster, lake, topic, partitions=1)
    lake.kill()
    write(cluster, topic, COUNT, 100, partitions=1)
    cut(cluster, topic, {0: COUNT + 50})
    place = {"table": str(lake.root / topic), **EVERYTHING}
    with pytest.raises(
        DataLossError, match=f"the table holds it up to {COUNT}, and the log begins"
    ):
        read(cluster, topic, **place)
    with caplog.at_level(logging.WARNING):
        found = read(cluster, topic, failOnDataLoss="false", **place)
    assert "records may be missing" in caplog.text
    assert found["offset"].to_pylist() == [*range(COUNT), *range(COUNT + 50, COUNT + 100)]
    assert_equal(found.slice(0, COUNT), expected)


def test_tables_are_found_below_a_root_by_the_settings_of_their_topics(cluster, lake, topic):
    create_topic(
        cluster, topic, partitions=1, config={**TABLE, "headrace.table.location": f"deep/{topic}"}
    )
    other = f"{topic}-other"
    create_topic(cluster, other, partitions=1)
    write(cluster, topic, partitions=1)
    write(cluster, other, partitions=1)
    wait_for_rows(lake.root / "deep" / topic, COUNT, lake)
    names = f"{topic},{other}"
    expected = read(cluster, topic, **EVERYTHING)
    cut(cluster, topic, {0: 300})
    root = {"table.root": str(lake.root)}
    assert_equal(read(cluster, topic, **root, **EVERYTHING), expected)
    found = list(UnitedRead(cluster, names, **root, **EVERYTHING).batches())
    assert sum(map(len, found)) == 2 * COUNT
    named = {f"table.{topic}": str(lake.root / "deep" / topic)}
    found = list(UnitedRead(cluster, names, **named, **EVERYTHING).batches())
    assert sum(map(len, found)) == 2 * COUNT
    with pytest.raises(OptionError, match="'table' is the table of one topic"):
        read(cluster, names, table=str(lake.root))


def test_the_log_alone_is_read_where_no_table_is_named_and_that_is_told(
    cluster, lake, topic, caplog
):
    all_in_table(cluster, lake, topic, partitions=1)
    cut(cluster, topic, {0: 200})
    _logged.clear()
    with caplog.at_level(logging.WARNING):
        assert len(read(cluster, topic, table="none")) == COUNT - 200
        assert "has a table" not in caplog.text
        assert len(read(cluster, topic)) == COUNT - 200
    assert "begins at offset 200" in caplog.text and "option 'table'" in caplog.text


def test_a_topic_that_was_made_anew_is_not_read_of_the_old_table(cluster, lake, topic):
    all_in_table(cluster, lake, topic, partitions=1)
    assert lake.end() == 0
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.delete_topics([topic])
        wait_until(lambda: topic not in admin.list_topics(), "the topic is gone")
    create_topic(cluster, topic, partitions=1)
    write(cluster, topic, partitions=1, count=10)
    cut(cluster, topic, {0: 5})
    # By what this process remembers of the topic it is still the old one.
    with pytest.raises(ConnectorError, match="created again"):
        read(cluster, topic, table=str(lake.root / topic))
    with pytest.raises(ConnectorError, match=r"BAD_TABLE.*was made anew"):
        read(cluster, topic, table=str(lake.root / topic))
    assert len(read(cluster, topic, table="none")) == 5
