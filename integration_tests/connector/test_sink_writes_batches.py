"""Batch writes to real brokers, without Spark around them, judged by confluent-kafka: the bytes of
records, their partitions, named writes, origins, and rows that can not be written. Source:
R-SPARK1, R-SPARK2, R-SPARK3.
"""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from connector.connections import close_all
from connector.errors import ConnectorError, OptionError
from integration_tests.connector.in_one_process import Read, values, write
from integration_tests.support.cluster_support import admin, create_topic
from integration_tests.support.spark_support import consume, produce
from storage_engine.tests.sampling import ALL_FAULTS

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
ROWS = 2000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SMALL_LIMIT = {"max.message.bytes": "2000"}


@pytest.fixture(scope="module", autouse=True)
def _connections():
    yield
    close_all()


def _texts(servers, topic):
    return sorted((each.value() or b"").decode() for each in consume(servers, topic))


def _mixed_rows():
    """Some without a key, a value or headers, and what confluent-kafka must find of them."""
    expected = [
        (
            f"key{number % 17}".encode() if number % 10 else None,
            (str(number) * 3).encode() if number % 100 != 7 else None,
            [("h", b"x"), ("h", None)] if number % 3 == 0 else None,
        )
        for number in range(ROWS)
    ]
    keys, values_, headers = zip(*expected, strict=True)
    rows = {
        "key": pa.array([key and key.decode() for key in keys], pa.string()),
        "value": pa.array(values_, pa.binary()),
        "headers": pa.array(
            [each and [{"key": k, "value": v} for k, v in each] for each in headers], HEADERS
        ),
    }
    return pa.table(rows), expected


@pytest.mark.parametrize("compression", CODECS if ALL_FAULTS else ["none", "zstd"])
def test_rows_written_are_read_by_another_client_byte_for_byte(
    spark_cluster, servers, topic, compression
):
    create_topic(spark_cluster, topic, partitions=3)
    rows, expected = _mixed_rows()
    halves = (rows.slice(0, ROWS // 2), rows.slice(ROWS // 2))
    write(servers, *halves, topic=topic, **{"kafka.compression.type": compression})
    messages = consume(servers, topic)
    written = [(each.key(), each.value(), each.headers()) for each in messages]
    assert sorted(written, key=repr) == sorted(expected, key=repr)
    partition_of_key = {each.key(): each.partition() for each in messages if each.key()}
    assert all(partition_of_key[each.key()] == each.partition() for each in messages if each.key())


def test_keys_go_to_the_partition_that_kafkas_java_client_chooses(spark_cluster, servers, topic):
    theirs_topic = f"{topic}-theirs"
    for each in (topic, theirs_topic):
        create_topic(spark_cluster, each, partitions=5)
    keys = [f"airport-{number}" for number in range(50)]
    write(servers, pa.table({"key": keys, "value": keys}), topic=topic)
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(theirs_topic, key=key.encode(), value=b"v")
    assert producer.flush(30) == 0
    ours, theirs = (
        {each.key(): each.partition() for each in consume(servers, name)}
        for name in (topic, theirs_topic)
    )
    assert len(ours) == len(keys)
    assert ours == theirs


def test_topic_and_partition_columns_say_where_a_row_goes(spark_cluster, servers, topic):
    other = f"{topic}-other"
    create_topic(spark_cluster, topic, partitions=2)
    create_topic(spark_cluster, other, partitions=3)
    partitions = pa.array([1, 2, 0], pa.int32())
    rows = {"value": ["a", "b", "c"], "topic": [topic, other, topic], "partition": partitions}
    write(servers, pa.table(rows))
    found = {
        (each.topic(), each.partition(), each.value())
        for name in (topic, other)
        for each in consume(servers, name)
    }
    assert found == {(topic, 1, b"a"), (other, 2, b"b"), (topic, 0, b"c")}


def test_many_small_records_fit_a_topic_with_a_small_limit(spark_cluster, servers, topic):
    create_topic(spark_cluster, topic, partitions=2, config=SMALL_LIMIT)
    write(servers, values(range(10_000)), values(range(10_000)), topic=topic)
    assert len(consume(servers, topic)) == 20_000


# --- rows that can not be written: one line, and nothing of their job


def _null_topic(topic):
    return pa.table({"value": ["v"], "topic": pa.array([None], pa.string())}), {}


def _partition_7(topic):
    rows = {"value": ["v"], "partition": pa.array([7], pa.int32())}
    return pa.table(rows), {"topic": topic}


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (_null_topic, "[NULL_TOPIC] 1 of 1 rows have null"),
        (_partition_7, "names partition 7 of the topic '{topic}', which has partitions 0 to 1"),
        (lambda topic: (values(["x" * 3000]), {"topic": topic}), "larger than the topic's max.mes"),
        (
            lambda topic: (values(["x" * 30_000]), {"topic": topic}),
            "a record takes 30072 bytes, and the topic's max.message.bytes is 2000",
        ),
    ],
    ids=["no topic", "no such partition", "too large for the brokers", "too large for the sink"],
)
def test_rows_that_cannot_be_written_are_told(spark_cluster, servers, topic, make, line):
    create_topic(spark_cluster, topic, partitions=2, config=SMALL_LIMIT)
    rows, options = make(topic)
    with pytest.raises(ConnectorError) as raised:
        write(servers, rows, **options)
    assert line.format(topic=topic) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert consume(servers, topic) == []


def test_a_topic_that_does_not_exist_is_told(servers, no_wait_for_topics):
    with pytest.raises(ConnectorError) as raised:
        write(servers, values(["v"]), topic="nowhere")
    assert "topic 'nowhere' does not exist" in str(raised.value)


def test_a_wrong_column_is_told_before_anything_is_written(servers, no_wait_for_topics):
    with pytest.raises(OptionError) as raised:
        write(servers, pa.table({"value": [1]}), topic="nowhere")
    assert str(raised.value) == (
        "[BAD_COLUMN] the column 'value' must be string or binary, not bigint; cast it"
    )


# --- named writes


def test_a_named_batch_is_written_once_however_often_it_is_repeated(spark_cluster, servers, topic):
    create_topic(spark_cluster, topic, partitions=2)
    for batch, first in ((7, 0), (7, 0), (8, 100), (7, 0)):
        named = {"topic": topic, "sinkId": topic, "batchId": str(batch)}
        write(servers, values(range(first, first + 100)), **named)
    assert sorted(map(int, _texts(servers, topic))) == list(range(200))
    assert len(Read(servers, subscribe=topic).table()) == 200


@pytest.mark.parametrize("order", [(5, 6), (6, 5)], ids=str)
def test_two_named_jobs_at_once_both_count_and_so_does_a_lower_number(
    spark_cluster, servers, topic, order
):
    create_topic(spark_cluster, topic, partitions=2)
    rounds = 20 if ALL_FAULTS else 3
    for each_round in range(rounds):
        named = {"topic": topic, "sinkId": f"{topic}-{each_round}"}

        def job(number, rows=100, named=named):
            texts = [f"{number} {row}" for row in range(rows)]
            write(servers, values(texts), batchId=str(number), **named)

        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(job, number) for number in order]:
                done.result()
        job(3)
        job(6, rows=7)
    assert _texts(servers, topic) == sorted(
        f"{number} {row}" for number in (3, 5, 6) for row in range(100) for _ in range(rounds)
    )


# --- rows that name their origin


def _copy(servers, topic):
    """Copies all records to `<topic>-target`, straight from the source's own columns."""
    rows = Read(servers, subscribe=topic, columns="value,topic,partition,offset").table()
    keyed = {"sinkId": f"{topic}-copy", "idempotentKey": "topic,partition,offset"}
    write(servers, rows, topic=f"{topic}-target", **keyed)


def _produce(servers, topic, numbers):
    produce(servers, topic, ({"value": b"%d" % number} for number in numbers))


def test_a_copy_writes_what_is_new(spark_cluster, servers, topic):
    for each in (topic, f"{topic}-target"):
        create_topic(spark_cluster, each, partitions=2)
    for numbers in (range(100), range(100, 200)):
        _produce(servers, topic, numbers)
        _copy(servers, topic)
    assert sorted(map(int, _texts(servers, f"{topic}-target"))) == list(range(200))


def test_a_topic_that_is_created_again_is_another_source(spark_cluster, servers, topic):
    for each in (topic, f"{topic}-target"):
        create_topic(spark_cluster, each)
    _produce(servers, topic, range(100))
    _copy(servers, topic)
    client = admin(spark_cluster)
    client.delete_topics([topic], request_timeout=60)[topic].result(90)
    create_topic(spark_cluster, topic)
    _produce(servers, topic, range(100, 150))
    # Whoever reads begins with what it knows of the brokers, as a new driver does.
    close_all()
    _copy(servers, topic)
    assert sorted(map(int, _texts(servers, f"{topic}-target"))) == list(range(150))
