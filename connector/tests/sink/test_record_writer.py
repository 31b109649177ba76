"""What a task does around the writer of the client."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from connector.errors import RowError
from connector.options.sink_options import parse_sink_options
from connector.sink import record_writer, topic_limits
from connector.sink.record_writer import GATHER_BYTES, GATHER_ROWS, gather, write_records
from connector.sink.topic_limits import _ask_limit as ask_limit
from storage_engine.client.admin import topics
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.protocol.records.record_decoder import decode_batches


def _rows(count, value="v"):
    return pa.record_batch({"value": pa.array([value] * count)})


class FakeWriter:
    """Stands for BatchWriter."""

    def __init__(self, cluster, *, acks, transaction, delivery_timeout_ms):
        assert transaction is None
        self.cluster = cluster
        self.flushed = False
        self.announced = set()
        cluster.writers.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def announce(self, partitions):
        self.announced |= set(partitions)

    def append(self, tp, batch):
        assert tp in self.announced
        self.cluster.appended.append((tp, batch))

    def flush(self):
        self.flushed = True


class FakeCluster:
    bootstrap_servers = "h:1"

    def __init__(self):
        self.writers, self.appended = [], []
        self.limit = 0

    def metadata(self, names, *, max_age_ms):
        return SimpleNamespace(topics=dict.fromkeys(names, SimpleNamespace(partitions=(0, 1))))


LIMIT = 10_000


@pytest.fixture
def cluster(monkeypatch):
    fake = FakeCluster()
    monkeypatch.setattr(record_writer, "cluster_for", lambda options: fake)
    monkeypatch.setattr(record_writer, "BatchWriter", FakeWriter)
    monkeypatch.setattr(topic_limits, "_limits", {})
    fake.limit = LIMIT
    monkeypatch.setattr(topic_limits, "_ask_limit", lambda cluster, topic: cluster.limit)
    return fake


def _write(pieces, **options):
    named = {name.replace("__", "."): text for name, text in options.items()}
    return write_records(
        parse_sink_options({"bootstrap.servers": "h:1", "topic": "t"} | named), iter(pieces)
    )


def test_small_pieces_are_gathered_and_no_row_is_dropped():
    pieces = [_rows(10_000), _rows(0), *[_rows(10_000)] * 6]
    gathered = [piece.num_rows for piece in gather(pieces)]
    assert gathered == [GATHER_ROWS, 20_000]


def test_a_large_piece_is_passed_as_it_is():
    """Two gibibytes of rows and a few more don't fit into one Arrow array."""
    few, large = _rows(10), _rows(3, "x" * (GATHER_BYTES // 3 + 1))
    gathered = list(gather([few, few, large, few]))
    assert [piece.num_rows for piece in gathered] == [20, 3, 10]
    assert gathered[1] is large


def test_no_rows_open_no_writer(cluster):
    assert _write([_rows(0)]).rows == 0
    assert cluster.writers == []


def test_all_rows_are_appended_and_flushed(cluster):
    written = _write([_rows(100), _rows(50)])
    assert (written.rows, written.batches) == (150, 1)
    assert cluster.writers[0].flushed
    ((_, batch),) = cluster.appended
    assert len(decode_batches(batch.data)) == 150


def test_batches_keep_below_the_limit_of_the_topic(cluster):
    _write([_rows(2_000, "x" * 100)])
    assert len(cluster.appended) > 20
    assert all(len(batch) <= LIMIT for _, batch in cluster.appended)


def test_a_record_above_the_limit_of_the_topic_is_one_line(cluster):
    with pytest.raises(RowError) as raised:
        _write([_rows(1, "x" * 20_000)])
    assert "a record takes 20072 bytes, and the topic's max.message.bytes is 10000" in str(
        raised.value
    )
    assert cluster.appended == []


def test_a_limit_that_was_raised_meanwhile_counts_before_a_record_is_refused(cluster):
    _write([_rows(2_000, "x" * 100)])
    cluster.limit, cluster.appended = 30_000, []
    _write([_rows(1, "x" * 20_000)])
    assert len(cluster.appended) == 1


def test_where_brokers_do_not_tell_the_limit_they_alone_refuse_a_record(cluster, monkeypatch):
    """As to a user who may write to the topic, and not describe its settings."""

    def refused(cluster, topic):
        raise KafkaError("settings of topic", ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    monkeypatch.setattr(topic_limits, "_ask_limit", ask_limit)
    monkeypatch.setattr(topics, "describe_topic_configs", refused)
    _write([_rows(1, "x" * 2_000_000)])
    assert len(cluster.appended) == 1
    _write([_rows(50_000, "x" * 100)])
    assert all(len(batch) <= 1_048_588 for _, batch in cluster.appended[1:])


def test_a_large_record_that_compresses_well_is_written(cluster):
    _write([_rows(1, "x" * 20_000)], compression__type="zstd")
    assert len(cluster.appended) == 1
