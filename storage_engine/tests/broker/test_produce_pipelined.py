"""Produce requests that follow one another on a connection are answered in their order, each by
itself, however the bytes are cut, and whatever is wrong with some of them."""

import contextlib
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.core.errors import LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.log.files.segment_files import LogFile
from storage_engine.net.connection import Connection
from storage_engine.protocol.apis import metadata
from storage_engine.protocol.framing import encode_request_frame
from storage_engine.tests.broker.wire_client import Client, frame
from storage_engine.tests.log.support import make_batch, read_all
from storage_engine.tests.sampling import examples

TOPICS = ("t", "u")
LARGE = 100_000


def metadata_frame(correlation_id):
    request = metadata.MetadataRequest(topics=[])
    return b"".join(encode_request_frame(metadata.API, 1, correlation_id, "c", request))


@st.composite
def batches(draw):
    kind = draw(st.sampled_from(["plain"] * 6 + ["idempotent", "damaged", "several", "empty"]))
    if kind == "empty":
        return memoryview(b"")
    if kind == "idempotent":
        return make_batch(producer=(draw(st.integers(1, 2)), 0, draw(st.integers(0, 3))))
    batch = make_batch(draw(st.integers(1, 3)), payload=bytes(draw(st.integers(0, 200))))
    if kind == "damaged":
        batch[draw(st.integers(0, len(batch) - 1))] ^= 1 << draw(st.integers(0, 7))
    if kind == "several":
        return memoryview(bytearray(batch) + bytearray(make_batch()))
    return batch


@st.composite
def streams(draw):
    """Requests of mostly one kind, and now and then another; the bytes of some are changed."""
    version = draw(st.sampled_from([3, 7, 8, 9, 12]))
    acks = draw(st.sampled_from([1, 1, -1]))
    data = []
    for number in range(draw(st.integers(1, 40))):
        kind = draw(st.sampled_from(["alike"] * 12 + ["other", "metadata", "changed", "two"]))
        if kind == "metadata":
            data.append(metadata_frame(number))
            continue
        options = {"acks": acks}
        if kind == "other":
            options = {
                "acks": draw(st.sampled_from([0, 1, -1, 2])),
                "topic": draw(st.sampled_from([*TOPICS, "absent"])),
                "client": draw(st.sampled_from(["c", "d", None])),
                "name": draw(st.sampled_from([None, "transaction"])),
            }
        one = [draw(batches()) for _ in range(2 if kind == "two" else 1)]
        made = bytearray(frame(version, number, one, **options))
        if kind == "changed":
            made[draw(st.integers(0, len(made) - 1))] ^= 1 << draw(st.integers(0, 7))
        data.append(bytes(made))
    return data


@contextlib.contextmanager
def one_broker():
    """A cluster of one broker that leads the topics."""
    with tempfile.TemporaryDirectory() as folder:
        made = SimulatedCluster(Path(folder), 1, default_replication_factor="1")
        for topic in TOPICS:
            assert made.create_topic(topic).error_code == 0
            made.loop.run_until(lambda topic=topic: leads(made, topic))
        try:
            yield made
        finally:
            made.close()


def leads(cluster, topic):
    partition = cluster[1].replicas.get(TopicPartition(topic, 0))
    return partition is not None and partition.leader is not None


@pytest.fixture
def cluster():
    with one_broker() as made:
        yield made


def outcome(cluster, pieces, **options):
    client = Client(cluster, **options)
    for piece in pieces:
        client.receive(piece)
    answers = client.end()
    logs = cluster[1].logs.logs
    contents = {
        topic: [tuple(h) for h in read_all(logs[TopicPartition(topic, 0)])] for topic in TOPICS
    }
    return answers, client.wire.closed, contents


def cut(data, cuts):
    position = 0
    for size in [*cuts, len(data)]:
        yield data[position : position + size]
        position += size


@settings(max_examples=examples(100), deadline=None)
@given(data=streams(), cuts=st.lists(st.integers(1, 3000), max_size=6))
def test_requests_in_a_row_are_answered_and_stored_like_those_that_come_alone(data, cuts):
    with one_broker() as together, one_broker() as alone:
        pieces = list(cut(b"".join(data), cuts))
        assert outcome(together, pieces) == outcome(alone, data)


@settings(max_examples=examples(100), deadline=None)
@given(
    data=streams(), cuts=st.lists(st.integers(1, 3000), max_size=6), seed=st.integers(0, 1 << 16)
)
def test_turns_that_end_between_requests_change_no_answer(data, cuts, seed):
    generator = random.Random(seed)
    with one_broker() as in_turns, one_broker() as alone:
        pieces = list(cut(b"".join(data), cuts))
        answers, closed, contents = outcome(
            in_turns, pieces, ends_turn=lambda: generator.random() < 0.3
        )
        expected = outcome(alone, data)
    if closed and expected[1]:
        # What waits to be sent is lost with the connection: more of it or less.
        shorter, longer = sorted((answers, expected[0]), key=len)
        assert longer.startswith(shorter)
    else:
        assert (answers, closed, contents) == expected


def test_a_damaged_batch_between_large_ones_is_refused_alone(cluster):
    requests = [
        bytearray(frame(9, number, [make_batch(payload=bytes([number]) * LARGE)]))
        for number in range(5)
    ]
    requests[2][-1000] ^= 1
    answers, _, contents = outcome(cluster, [b"".join(requests)], frame_max_bytes=2 * LARGE)
    assert answers.count(b"CRC") == 1
    assert len(contents["t"]) == 4


def test_a_disk_that_fails_fails_all_requests_in_a_row(cluster, monkeypatch):
    partition = cluster[1].replicas.get(TopicPartition("t", 0))

    def fail(file, data, end):
        raise LogStorageError("the disk is broken")

    monkeypatch.setattr(LogFile, "append", fail)
    client = Client(cluster)
    client.receive(b"".join(frame(9, number, [make_batch()]) for number in range(10)))
    answers = client.end()
    assert answers.count(b"the disk is broken") == 1
    assert answers.count(b"\x02t") == 10
    assert partition.role is Role.FAILED


def test_no_more_is_taken_at_once_than_a_connection_may_have_unanswered(cluster, monkeypatch):
    """acks=all waits for the end of the turn, so five requests are under way."""
    most = 0
    original = Connection.begin

    def begin(self):
        nonlocal most
        exchange = original(self)
        most = max(most, self.unanswered)
        return exchange

    monkeypatch.setattr(Connection, "begin", begin)
    data = b"".join(frame(9, number, [make_batch()], acks=-1) for number in range(30))
    answers, closed, contents = outcome(cluster, [data])
    assert len(contents["t"]) == 30
    assert not closed
    assert answers
    assert most == 5
