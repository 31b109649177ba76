"""Produce requests that are taken in runs are answered as if each came by itself, whatever else is
on the connection, however the bytes are cut, and whatever is wrong with them."""

import contextlib
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.produce_runs import PATIENCE, REST
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.core.errors import LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.log.segments.log_file import LogFile
from storage_engine.net.connection import Connection
from storage_engine.net.limits import ServerLimits
from storage_engine.net.served_listener import ServedListener
from storage_engine.net.server import Server
from storage_engine.protocol import produce_run
from storage_engine.protocol.apis import metadata, produce
from storage_engine.protocol.framing import encode_request_frame
from storage_engine.protocol.produce_run import ProducePattern
from storage_engine.tests.log.support import make_batch, read_all
from storage_engine.tests.sampling import examples

TOPICS = ("t", "u")
FRAME_MAX_BYTES = 4000
SMALL, LARGE = 100, 100_000
"""Bytes of records on both sides of what is copied."""


class Wire:
    """A transport that keeps what is sent, in place of a socket."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False
        self.reading = True
        self._socket = socket.socket()

    def get_extra_info(self, name):
        return self._socket if name == "socket" else ("10.0.0.1", 1)

    def set_write_buffer_limits(self, high):
        pass

    def write(self, data):
        self.sent += bytes(data)

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    abort = close

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def get_write_buffer_size(self):
        return 1  # so that nothing is written past us


class TurnLoop:
    """The part of an event loop that a server's connections use."""

    def __init__(self) -> None:
        self.soon: list = []

    def call_soon(self, callback, *args):
        self.soon.append((callback, args))

    def run(self) -> None:
        while self.soon:
            soon, self.soon = self.soon, []
            for callback, args in soon:
                callback(*args)


class Client:
    """A connection to a simulated broker, with runs or without."""

    def __init__(
        self, cluster: SimulatedCluster, *, runs: bool, frame_max_bytes: int = FRAME_MAX_BYTES
    ) -> None:
        self._cluster = cluster
        parts = cluster[1].parts
        self._loop = TurnLoop()
        listener = ServedListener(
            host="",
            handle=parts.dispatcher,
            handle_run=parts.produce_runs if runs else None,
        )
        server = Server(
            self._loop,
            [listener],
            ServerLimits(request_max_bytes=frame_max_bytes, pending_per_connection=5),
        )
        self.wire = Wire()
        self.connection = Connection(server, listener)
        self.connection.connection_made(self.wire)

    def receive(self, data: bytes) -> None:
        while data and not self.wire.closed:
            self.wait_until_read()
            if not self.wire.reading:
                continue
            buffer = self.connection.get_buffer(-1)
            part = data[: len(buffer)]
            buffer[: len(part)] = part
            self.connection.buffer_updated(len(part))
            data = data[len(part) :]
            self._loop.run()

    def wait_until_read(self) -> None:
        """A halted connection waits for answers, which come with time."""
        while not (self.wire.reading or self.wire.closed):
            self.turn()

    def turn(self) -> None:
        self._cluster.loop.run_for(50)
        self._loop.run()

    def end(self) -> bytes:
        self.wait_until_read()
        for _ in range(3):
            self.turn()
        self.connection.connection_lost(None)
        self._loop.run()
        self.wire._socket.close()
        return self.wire.sent


def frame(
    version, correlation_id, batches, *, topic="t", partition=0, acks=1, client="c", name=None
):
    items = [produce.ProducePartition(topic, partition, batch) for batch in batches]
    request = produce.ProduceRequest(name, acks, 1000, items)
    return b"".join(encode_request_frame(produce.API, version, correlation_id, client, request))


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
    return b"".join(data)


@st.composite
def good_streams(draw):
    """Requests that are alike and good, but for a bit of one; of one size or several, of a producer
    or none."""
    version, acks = draw(st.sampled_from([3, 7, 8, 9, 12])), draw(st.sampled_from([1, 1, -1]))
    producer_id = draw(st.sampled_from([-1, -1, 5]))
    sizes = draw(st.sampled_from([[30], [30], [1, 90], list(range(120, 132))]))
    data = []
    for number in range(draw(st.integers(2, 60))):
        batch = make_batch(
            payload=bytes(draw(st.sampled_from(sizes))), producer=(producer_id, 0, number)
        )
        data.append(bytearray(frame(version, number, [batch], acks=acks)))
    for _ in range(draw(st.integers(0, 2))):
        changed = draw(st.sampled_from(data))
        changed[draw(st.integers(0, len(changed) - 1))] ^= 1 << draw(st.integers(0, 7))
    return b"".join(data)


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


def outcome(cluster, data, cuts, *, runs, frame_max_bytes=FRAME_MAX_BYTES):
    client = Client(cluster, runs=runs, frame_max_bytes=frame_max_bytes)
    position = 0
    for cut in [*cuts, len(data)]:
        client.receive(data[position : position + cut])
        position += cut
    answers = client.end()
    logs = cluster[1].logs.logs
    contents = {
        topic: [tuple(h) for h in read_all(logs[TopicPartition(topic, 0)])] for topic in TOPICS
    }
    return answers, client.wire.closed, contents


@settings(max_examples=examples(100), deadline=None)
@given(
    data=st.one_of(streams(), good_streams()),
    cuts=st.lists(st.integers(1, 3000), max_size=6),
    copied_max_bytes=st.sampled_from([0, 150, 1 << 20]),
)
def test_runs_are_answered_and_stored_like_single_requests(data, cuts, copied_max_bytes):
    with (
        pytest.MonkeyPatch.context() as patch,
        one_broker() as together,
        one_broker() as alone,
    ):
        patch.setattr(produce_run, "COPIED_MAX_BYTES", copied_max_bytes)
        assert outcome(together, data, cuts, runs=True) == outcome(alone, data, cuts, runs=False)


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("payloads", [[40], [40, 41, 90]])
def test_good_requests_in_a_row_are_appended_in_columns(cluster, version, payloads, monkeypatch):
    columns = []
    ways_in = cluster[1].parts.replicas.producer_appends
    original = ways_in.append_columns

    def counted(tp, batches, connection, *, acks):
        offsets = original(tp, batches, connection, acks=acks)
        columns.append(offsets)
        return offsets

    outcome(cluster, frame(version, 0, [make_batch()]), [], runs=True)
    monkeypatch.setattr(ways_in, "append_columns", counted)
    data = b"".join(
        frame(version, number, [make_batch(payload=bytes(payloads[number % len(payloads)]))])
        for number in range(10)
    )
    answers, _, contents = outcome(cluster, data, [], runs=True)
    assert columns == [list(range(1, 12))]
    assert len(contents["t"]) == 11
    assert answers.count(b"\x00\x01t") + answers.count(b"\x02t") >= 10


def large_requests(sizes):
    batches = [make_batch(payload=bytes([number]) * size) for number, size in enumerate(sizes)]
    return [bytearray(frame(9, number, [batch])) for number, batch in enumerate(batches)]


@pytest.fixture
def runs_taken(cluster, monkeypatch):
    """How many requests each run had that was appended in columns; None: it was refused."""
    taken = []
    ways_in = cluster[1].parts.replicas.producer_appends
    original = ways_in.append_columns

    def noted(tp, batches, connection, *, acks):
        offsets = original(tp, batches, connection, acks=acks)
        taken.append(offsets and len(offsets) - 1)
        return offsets

    outcome(cluster, frame(9, 0, [make_batch()]), [], runs=True)
    monkeypatch.setattr(ways_in, "append_columns", noted)
    return taken


def test_large_requests_are_taken_in_a_run_wherever_small_ones_are_between(cluster, runs_taken):
    sizes = [LARGE, LARGE + 1, LARGE, SMALL, SMALL, LARGE, SMALL]
    answers, closed, contents = outcome(
        cluster, b"".join(large_requests(sizes)), [], runs=True, frame_max_bytes=2 * LARGE
    )
    # The last one is alone in what is left.
    assert runs_taken == [3, 2, 1]
    assert not closed
    assert answers.count(b"\x02t") == len(sizes)
    assert len(contents["t"]) == 1 + len(sizes)


def test_a_damaged_batch_within_a_run_of_large_ones_is_refused_alone(cluster, runs_taken):
    requests = large_requests([LARGE] * 5)
    requests[2][-1000] ^= 1
    data = b"".join(requests)
    answers, _, contents = outcome(cluster, data, [], runs=True, frame_max_bytes=2 * LARGE)
    assert runs_taken[0] is None
    assert answers.count(b"CRC") == 1
    assert len(contents["t"]) == 1 + 4
    with one_broker() as alone:
        outcome(alone, frame(9, 0, [make_batch()]), [], runs=False)
        assert (answers, False, contents) == outcome(
            alone, data, [], runs=False, frame_max_bytes=2 * LARGE
        )


def test_a_segment_is_rolled_between_large_requests_as_between_others(cluster, runs_taken):
    log = cluster[1].logs.logs[TopicPartition("t", 0)]
    log.update_config(replace(log.config, segment_bytes=3 * LARGE))
    data = b"".join(large_requests([LARGE] * 7))
    answers, _, _ = outcome(cluster, data, [], runs=True, frame_max_bytes=2 * LARGE)
    assert answers.count(b"\x02t") == 7
    assert [header.base_offset for header in read_all(log)] == list(range(8))
    assert log.segment_count == 4
    assert None in runs_taken


def test_a_disk_that_fails_fails_all_requests_of_a_run(cluster, monkeypatch):
    outcome(cluster, frame(9, 0, [make_batch()]), [], runs=True)
    partition = cluster[1].replicas.get(TopicPartition("t", 0))

    def fail(file, data, end):
        raise LogStorageError("the disk is broken")

    monkeypatch.setattr(LogFile, "append", fail)
    data = b"".join(frame(9, number, [make_batch()]) for number in range(10))
    client = Client(cluster, runs=True)
    client.receive(data)
    answers = client.end()
    assert answers.count(b"the disk is broken") == 10
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
    answers, closed, contents = outcome(cluster, data, [], runs=True)
    assert len(contents["t"]) == 30
    assert not closed
    assert answers
    assert most == 5


def test_a_client_that_changes_partitions_costs_no_patterns_for_long(cluster, monkeypatch):
    made = 0
    original = ProducePattern.of

    def of(*args, **options):
        nonlocal made
        made += 1
        return original(*args, **options)

    monkeypatch.setattr(ProducePattern, "of", of)
    data = [frame(9, number, [make_batch()], topic=TOPICS[number % 2]) for number in range(REST)]
    _, _, contents = outcome(cluster, b"".join(data), [], runs=True)
    assert sum(map(len, contents.values())) == REST
    assert made == PATIENCE
