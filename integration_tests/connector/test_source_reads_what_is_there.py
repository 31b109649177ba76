"""The source's planning and reading against brokers, without Spark: topics that are created again,
offsets without records, records that are gone, options that narrow a read, sizes.
"""

import json
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from connector.connections import close_all
from connector.errors import ConnectorError, DataLossError
from connector.options.source_options import parse_source_options
from connector.source import source_metadata
from connector.source.batch_reader import HeadraceBatchReader
from connector.source.stream_reader import HeadraceStreamReader
from connector.spark_classes import ReadAllAvailable
from integration_tests.connector.in_one_process import Read
from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    partition_metadata,
    wait_until,
)
from integration_tests.support.spark_support import (
    consume,
    first_offset,
    produce,
    produce_apart,
)
from integration_tests.support.transactional_clients import Confluent
from storage_engine.client.fetching.fetch import BatchFetcher

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
}
KEPT = {"retention.ms": "-1"}
LOST_END = 102
SHORT_RETENTION = {"segment.bytes": "20000", "retention.bytes": "30000"}
TIME_MS = 1_700_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def cluster(cluster):
    yield cluster
    close_all()


@pytest.fixture
def little_patience(monkeypatch):
    """For what is lost for good."""
    monkeypatch.setattr(source_metadata, "GONE_PATIENCE_MS", 300)
    monkeypatch.setattr(source_metadata, "TOPIC_PATIENCE_MS", 300)


@pytest.fixture
def servers(cluster):
    return cluster.bootstrap_servers


def _options(servers, topic, **options):
    named = {"bootstrap.servers": servers, "subscribe": topic, "kafka.metadata.max.age.ms": "500"}
    # A read that stalls fails soon.
    named |= {"kafkaConsumer.pollTimeoutMs": "20000", "startingOffsets": "earliest"} | options
    return parse_source_options({key: text for key, text in named.items() if text is not None})


def _values(batches):
    return [value.decode() for batch in batches for value in batch.column("value").to_pylist()]


def _tasks_values(reader, tasks):
    return [value for task in tasks for value in _values(reader.read(task))]


class Stream:
    """A query, as Spark drives one."""

    def __init__(self, servers, topic, *, at=None, **options):
        """`at`: where a query with its checkpoint goes on."""
        self.reader = HeadraceStreamReader(_options(servers, topic, **options))
        self.limit = self.reader.getDefaultReadLimit()
        self.at = self.reader.initialOffset() if at is None else json.loads(json.dumps(at))

    def micro_batch(self):
        """Its values; None where there is nothing to read."""
        end = self.reader.latestOffset(self.at, self.limit)
        if end == self.at:
            return None
        tasks = self.reader.partitions(self.at, end)
        self.at = end
        return _tasks_values(self.reader, tasks)

    def all(self):
        found = []
        while (values := self.micro_batch()) is not None:
            found += values
        return found


def _numbers(first, last, **fields):
    return [{"value": str(number).encode(), **fields} for number in range(first, last)]


def _texts(first, last):
    return [str(number) for number in range(first, last)]


def _create_again(cluster, topic):
    client = admin(cluster)
    client.delete_topics([topic], request_timeout=60)[topic].result(90)
    wait_until(lambda: topic not in client.list_topics(timeout=60).topics, "the topic is gone")
    create_topic(cluster, topic)


def test_a_topic_created_again_is_never_taken_for_the_old_one(cluster, servers, topic):
    create_topic(cluster, topic)
    produce(servers, topic, _numbers(0, 5))
    strict, lenient = Stream(servers, topic), Stream(servers, topic, failOnDataLoss="false")
    assert strict.all() == lenient.all() == _texts(0, 5)
    _create_again(cluster, topic)
    # Longer than what was read of the old one, so that no offset betrays it.
    produce(servers, topic, _numbers(100, 120))

    def loss():
        try:
            strict.micro_batch()
        except DataLossError as error:
            return str(error)
        return None

    told = wait_until(loss, "the loss is noticed")
    assert "deleted and created again" in told
    found = wait_until(lambda: lenient.micro_batch(), "the new topic is read")
    assert found == _texts(100, 120)
    produce(servers, topic, _numbers(120, 125))
    assert lenient.all() == _texts(120, 125)


def test_a_batch_planned_before_its_topic_was_created_again_reads_nothing_of_the_new_one(
    cluster, servers, topic, little_patience
):
    create_topic(cluster, topic)
    produce(servers, topic, _numbers(0, 5))
    strict, lenient = Stream(servers, topic), Stream(servers, topic, failOnDataLoss="false")
    end = strict.reader.latestOffset(strict.at, ReadAllAvailable())
    (task,) = strict.reader.partitions(strict.at, end)
    _create_again(cluster, topic)
    produce(servers, topic, _numbers(100, 120))
    # A driver that replays the batch, and a task that begins late.
    with pytest.raises(DataLossError, match="deleted and created again"):
        strict.reader.partitions(strict.at, end)
    with pytest.raises(ConnectorError, match="deleted and created again"):
        list(strict.reader.read(task))
    assert lenient.reader.partitions(lenient.at, end) == []


def test_a_batch_whose_topic_is_gone_is_a_loss_and_no_dead_end(
    cluster, servers, topic, little_patience
):
    create_topic(cluster, topic)
    produce(servers, topic, _numbers(0, 5))
    strict, lenient = Stream(servers, topic), Stream(servers, topic, failOnDataLoss="false")
    end = strict.reader.latestOffset(strict.at, ReadAllAvailable())
    client = admin(cluster)
    client.delete_topics([topic], request_timeout=60)[topic].result(90)
    wait_until(lambda: topic not in client.list_topics(timeout=60).topics, "the topic is gone")
    with pytest.raises(DataLossError, match=f"{topic}-0, wanted from offset 0 to 5, is gone"):
        strict.reader.partitions(strict.at, end)
    assert lenient.reader.partitions(lenient.at, end) == []


@pytest.fixture(scope="module")
def shortened(cluster):
    """A topic whose first records are gone, and where a stream is that had read two of them. Each
    value is its offset. Retention may go on while tests read."""
    name, servers = "shortened-by-retention", cluster.bootstrap_servers
    create_topic(cluster, name, config=SHORT_RETENTION)
    produce(servers, name, _numbers(0, 2))
    stream = Stream(servers, name)
    assert stream.all() == _texts(0, 2)
    padded = [{"value": b"%d" % number + b" " * 1000} for number in range(2, LOST_END)]
    produce_apart(servers, name, (padded[first : first + 10] for first in range(0, 100, 10)))
    wait_until(lambda: first_offset(servers, name) > 2, "retention deletes segments")
    return name, stream.at


def test_a_batch_that_begins_with_records_that_are_gone_is_a_loss_or_steps_over(servers, shortened):
    topic, _ = shortened
    named = {"startingOffsets": json.dumps({topic: {"0": 0}})}
    with pytest.raises(DataLossError) as raised:
        HeadraceBatchReader(_options(servers, topic, **named)).partitions()
    assert str(raised.value).startswith(
        f"[DATA_LOSS] 'startingOffsets' names offset 0 of {topic}-0, which has the offsets from "
    )
    lenient = HeadraceBatchReader(_options(servers, topic, **named, failOnDataLoss="false"))
    offsets = [row["offset"] for row in _rows(lenient)]
    assert offsets == list(range(offsets[0], LOST_END))
    assert offsets[0] > 2


def test_a_stream_that_goes_on_with_records_that_are_gone_is_a_loss_or_steps_over(
    servers, shortened
):
    topic, at = shortened
    with pytest.raises(DataLossError) as raised:
        Stream(servers, topic, at=at).micro_batch()
    line = str(raised.value)
    assert line.startswith(f"[DATA_LOSS] offset 2 of {topic}-0 is wanted, but the log begins at ")
    assert "set failOnDataLoss=false" in line
    found = [int(value) for value in Stream(servers, topic, at=at, failOnDataLoss="false").all()]
    assert found == list(range(found[0], LOST_END))
    assert found[0] > 2


def test_new_topics_of_a_pattern_and_added_partitions_are_read(cluster, servers, topic):
    create_topic(cluster, topic, partitions=2)
    produce(servers, topic, _numbers(0, 10))
    named = {"subscribe": None, "subscribePattern": f"{topic}.*"}
    first = Stream(servers, topic, **named)
    assert sorted(first.all(), key=int) == _texts(0, 10)
    create_topic(cluster, f"{topic}-new", partitions=2)
    produce(servers, f"{topic}-new", _numbers(10, 20))
    client = admin(cluster)
    client.create_partitions([NewPartitions(topic, 4)], request_timeout=60)[topic].result(90)
    wait_until(lambda: partition_metadata(client, topic, 3) is not None, "four partitions")
    produce(servers, topic, _numbers(20, 30, partition=3))
    again = Stream(servers, topic, at=first.at, **named)
    found: list[str] = []

    def read_on():
        found.extend(again.micro_batch() or [])
        return len(found) >= 20

    wait_until(read_on, "all is read")
    assert sorted(found, key=int) == _texts(10, 30)


def _write_with_gaps(servers, topic):
    """Markers and aborted records between the others, and at the end."""
    producer = Confluent(servers, f"gaps-{topic}")
    for number in range(6):
        producer.begin()
        for each in range(3):
            producer.write(topic, 0, b"%d-%d" % (number, each))
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    producer.close()


def test_no_cut_and_no_limit_stalls_at_markers_and_aborted_records(cluster, servers, topic):
    create_topic(cluster, topic)
    _write_with_gaps(servers, topic)
    expected = [(each.value() or b"").decode() for each in consume(servers, topic)]
    assert expected == [f"{number}-{each}" for number in (0, 2, 4) for each in range(3)]
    wait_until(
        lambda: (
            Stream(servers, topic).reader.latestOffset({topic: {"0": 0}}, ReadAllAvailable())[topic]
            == {"0": 24}
        ),
        "the last marker is there",
    )
    reader = HeadraceBatchReader(_options(servers, topic, maxRecordsPerPartition="1"))
    tasks = reader.partitions()
    assert len(tasks) == 24
    assert _tasks_values(reader, tasks) == expected
    # Micro-batches of one offset, most of them without a row, and one of 4 offsets without any.
    stream = Stream(servers, topic, maxOffsetsPerTrigger="1")
    assert stream.all() == expected
    assert stream.at[topic] == {"0": 24}
    stream = Stream(servers, topic, minOffsetsPerTrigger="4", maxOffsetsPerTrigger="4")
    assert stream.all() == expected
    assert stream.at[topic] == {"0": 24}


def test_no_cut_stalls_where_compaction_left_gaps(cluster, servers, topic):
    create_topic(cluster, topic, config=COMPACTED)
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for number in range(40):
        for key in range(8):
            producer.produce(topic, key=b"k%d" % key, value=b"%d" % number * 60, partition=0)
        assert producer.flush(60) == 0
    whole = HeadraceBatchReader(_options(servers, topic))

    def compacted():
        found = _tasks_values(whole, whole.partitions())
        return found if len(found) < 160 else None

    last = wait_until(compacted, "the log is compacted")
    assert last is not None
    cut = HeadraceBatchReader(_options(servers, topic, maxRecordsPerPartition="7"))
    tasks = cut.partitions()
    assert len(tasks) == -(-320 // 7)
    # It may be compacted further meanwhile; the newest value of each key is there once or more.
    found = _tasks_values(cut, tasks)
    assert found[-8:] == last[-8:] == ["39" * 60] * 8
    assert len(found) <= len(last)
    stream = Stream(servers, topic, maxOffsetsPerTrigger="7")
    assert stream.all()[-8:] == ["39" * 60] * 8


@pytest.fixture
def fetched_bytes(monkeypatch):
    """Counts what fetches bring."""
    counted = [0]

    read = BatchFetcher.read

    def counted_read(self):
        for each in read(self):
            counted[0] += len(each.records)
            yield each

    monkeypatch.setattr(BatchFetcher, "read", counted_read)
    return counted


def _rows(reader):
    """In order of partition and offset: which task has which partition depends on their sizes."""
    found = [
        row
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: (row.get("partition"), row["offset"]))


def _narrow_options(topic):
    """Options that narrow a read, and the rows that they leave."""
    return {
        "partition": (
            {"subscribe": None, "assign": json.dumps({topic: [1]})},
            lambda row: row["partition"] == 1,
        ),
        "offset": (
            {
                "startingOffsets": json.dumps({topic: {"0": 1990, "1": 1990}}),
                "endingOffsets": json.dumps({topic: {"0": 1995, "1": 1995}}),
            },
            lambda row: 1990 <= row["offset"] < 1995,
        ),
        "timestamp": (
            {"startingTimestamp": str(TIME_MS + 1_900)},
            lambda row: row["timestamp"] >= EPOCH + timedelta(milliseconds=TIME_MS + 1_900),
        ),
    }


def test_options_that_narrow_a_read_fetch_less(cluster, servers, topic, fetched_bytes):
    create_topic(cluster, topic, partitions=2, config=KEPT)
    batches = (
        [
            {"value": b"%d" % number * 25, "partition": partition, "timestamp": TIME_MS + number}
            for number in range(first, first + 100)
        ]
        for partition in range(2)
        for first in range(0, 2000, 100)
    )
    produce_apart(servers, topic, batches)
    everything = _rows(HeadraceBatchReader(_options(servers, topic)))
    all_bytes = fetched_bytes[0]
    assert len(everything) == 4000
    for name, (options, passes) in _narrow_options(topic).items():
        fetched_bytes[0] = 0
        found = _rows(HeadraceBatchReader(_options(servers, topic, **options)))
        assert found == [row for row in everything if passes(row)], name
        assert 0 < fetched_bytes[0] < all_bytes * 0.7, name


def test_tasks_are_cut_by_the_bytes_of_the_log(cluster, servers, topic):
    create_topic(cluster, topic)
    produce(servers, topic, [{"value": bytes(1000)} for _ in range(100)])
    reader = HeadraceBatchReader(_options(servers, topic, maxBytesPerPartition="20000"))
    ranges = [each for task in reader.partitions() for each in task.value]
    assert [each.start_offset for each in ranges[1:]] == [each.end_offset for each in ranges[:-1]]
    assert 5 <= len(ranges) <= 7
    assert len(_rows(reader)) == 100


def test_columns_that_are_not_asked_for_are_left_out(cluster, servers, topic):
    create_topic(cluster, topic)
    produce(servers, topic, _numbers(0, 3, key=b"k"))
    reader = HeadraceBatchReader(_options(servers, topic, columns="offset, topic"))
    assert _rows(reader) == [{"topic": topic, "offset": offset} for offset in range(3)]


def test_a_pattern_and_a_time_beyond_the_end_choose_what_is_read(cluster, servers, topic):
    create_topic(cluster, topic, partitions=2, config=KEPT)
    produce(servers, topic, _numbers(0, 20, timestamp=TIME_MS))
    pattern = {"subscribe": None, "subscribePattern": f"{topic[:-1]}."}
    assert len(_rows(HeadraceBatchReader(_options(servers, topic, **pattern)))) == 20
    later = {"startingTimestamp": str(TIME_MS + 10**9)}
    later["startingOffsetsByTimestampStrategy"] = "latest"
    assert HeadraceBatchReader(_options(servers, topic, **later)).partitions() == []


def test_a_partition_is_cut_for_as_many_tasks_as_are_asked_for(cluster, servers, topic):
    create_topic(cluster, topic)
    produce(servers, topic, _numbers(0, 1000))
    reader = HeadraceBatchReader(_options(servers, topic, minPartitions="4"))
    tasks = reader.partitions()
    assert len(tasks) == 4
    assert _tasks_values(reader, tasks) == _texts(0, 1000)


def test_a_topic_that_does_not_exist_is_told(servers, little_patience):
    with pytest.raises(ConnectorError) as raised:
        Read(servers, subscribe="nowhere")
    assert str(raised.value).startswith("[UNKNOWN_TOPIC] no topic nowhere on 127.0.0.1:")


def test_brokers_that_are_not_there_are_told_with_their_addresses():
    with pytest.raises(ConnectorError, match=r"127\.0\.0\.1:9"):
        Read("127.0.0.1:9", subscribe="t", **{"kafka.request.timeout.ms": "1000"})
