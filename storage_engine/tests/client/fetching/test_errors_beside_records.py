"""An error of one partition is told, and costs no other partition a record or its turn (R-CLI2)."""

import pyarrow as pa
import pytest

from storage_engine.client.consumer.consumer import Consumer
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.core.errors import ErrorCode, HeadraceError, KafkaError, OffsetOutOfRangeError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_encoder import iter_encoded

GOOD, BAD = TopicPartition("t", 0), TopicPartition("t", 1)
BEYOND = 999
POLLS = 12


@pytest.fixture(params=[[1, 1], [1, 2], [2, 1]], ids=str)
def two(fake, request):
    """Two partitions of these leaders, with 30 records in the first."""
    fake.add_topic("t", request.param)
    append(fake)
    return fake


def append(fake):
    for number in range(30):
        (batch,) = iter_encoded(pa.array([b"%d" % number], pa.binary()))
        fake.partition("t").append(bytes(batch.data))


def consumer(fake, order):
    made = Consumer({"bootstrap.servers": fake.bootstrap_servers, "auto.offset.reset": "none"})
    made.assign(order)
    for tp in order:
        made.seek(tp, BEYOND if tp == BAD else 0)
    return made


def polled(made, count, least_errors=0):
    """The offsets of the good partition, and how often an error came."""
    offsets: list[int] = []
    errors = 0
    for _ in range(POLLS):
        if len(offsets) >= count and errors >= least_errors:
            break
        try:
            offsets += [record.offset for record in made.poll(300)]
        except OffsetOutOfRangeError:
            errors += 1
    return offsets, errors


@pytest.mark.parametrize("order", [(GOOD, BAD), (BAD, GOOD)], ids=["good first", "bad first"])
def test_a_consumer_gets_every_record_of_a_partition_beside_one_that_is_out_of_range(two, order):
    with consumer(two, order) as made:
        offsets, errors = polled(made, 30, least_errors=2)
        assert offsets == list(range(30))
        assert errors == 2


def test_an_offset_out_of_range_is_told_each_time_until_somebody_seeks(two):
    with consumer(two, (BAD,)) as made:
        assert polled(made, 1) == ([], POLLS)
        made.seek(BAD, 0)
        made.assign((BAD, GOOD))
        made.seek(GOOD, 0)
        assert polled(made, 30) == (list(range(30)), 0)


def test_a_partition_is_read_on_from_where_it_was_sought_after_an_error_of_another(two):
    """What came beside the error is of the position before."""
    with consumer(two, (GOOD, BAD)) as made:
        assert polled(made, 0, least_errors=1)[1] == 1
        made.seek(BAD, 0)
        made.seek(GOOD, 20)
        assert polled(made, 10)[0] == list(range(20, 30))


def test_a_fetch_whose_topic_can_not_be_checked_is_sent_again(two, cluster, monkeypatch):
    """Of a broker that knows topics by their names only."""
    two.api_versions[1] = (4, 12)
    cluster.refresh(["t"])
    reader = BatchFetcher(cluster, {GOOD: (0, None)}, topic_ids=dict(two.topic_ids))
    refresh = cluster.refresh

    def failing(*_):
        monkeypatch.setattr(cluster, "refresh", refresh)
        raise KafkaError("no answer", ErrorCode.REQUEST_TIMED_OUT)

    found = []
    monkeypatch.setattr(cluster, "refresh", failing)
    for _ in range(POLLS):
        try:
            found += reader.poll(300)
        except HeadraceError:
            continue
        if found:
            break
    assert [(each.start_offset, each.next_offset) for each in found] == [(0, 30)]
    reader.close()


def test_what_has_come_is_returned_also_when_no_further_fetch_can_be_sent(
    two, cluster, monkeypatch
):
    cluster.refresh(["t"])
    reader = BatchFetcher(cluster, {GOOD: (0, None)})
    sends = iter([reader._send_fetches])

    def send() -> None:
        if (real := next(sends, None)) is None:
            raise KafkaError("of the test", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        real()

    monkeypatch.setattr(reader, "_send_fetches", send)
    with pytest.raises(KafkaError, match="of the test"):
        reader.poll(5000)
    (found,) = reader.poll(5000)
    assert (found.start_offset, found.next_offset) == (0, 30)
    reader.close()
