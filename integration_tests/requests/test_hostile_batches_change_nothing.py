"""R-REP2, R-NET3: a batch that may not be taken gets its typed error and leaves the log,
its own connection and all others as they were.
"""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integration_tests.support.cluster_support import create_topic, running_cluster
from integration_tests.support.settings_support import folder_of
from integration_tests.support.stored_logs import log_bytes
from storage_engine.client.connection import BrokerConnection
from storage_engine.core.errors import ErrorCode, HeadraceError
from storage_engine.net.deadline import Deadline
from storage_engine.net.limits import BufferPool
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
)
from storage_engine.protocol.framing import encode_request_frame, parse_response
from storage_engine.protocol.records.record_batch import Codec, iter_headers
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.protocol.hostile_batches import (
    GOOD,
    MAX_MESSAGE_BYTES,
    NULL_RECORDS,
    ODD_BUT_FINE,
    REFUSED,
    batch,
    bomb,
    compressed,
    headers,
    mutated,
    mutations,
    refused_by_compacted_topics,
)
from storage_engine.tests.sampling import examples

TIMEOUT_MS = 30_000
FIRST_VERSION_WITH_MESSAGE = 8
VERSIONS = (3, 7, 8, 9)

BOMBS = 14
GROWTH_MAX_BYTES = 400 << 20
"""Of a broker that gets many bombs: as much as one of them takes for a moment, and what the
libraries are that look into it. What an error of the first holds must not wait for a collection."""

SIZE = 4
"""Bytes of a frame's length."""


class Hostile:
    """A connection that sends whatever it is told to."""

    def __init__(self, cluster: Any, topic: str) -> None:
        self._entry = cluster.state.brokers[0]
        self.topic = topic
        self.folder: Path = folder_of(cluster, 1, topic)
        self._connection = self.connect()

    def connect(self) -> BrokerConnection:
        address = self._entry.host, self._entry.port
        return BrokerConnection.open(address, "hostile", self._deadline(), BufferPool())

    def _deadline(self) -> Deadline:
        return Deadline.after(TIMEOUT_MS)

    def request(self, records: bytes | None, *, acks: int = -1) -> ProduceRequest:
        data = None if records is None else memoryview(records)
        return ProduceRequest(None, acks, TIMEOUT_MS, [ProducePartition(self.topic, 0, data)])

    def produce(self, records: bytes | None, *, version: int = 9) -> ProducePartitionResponse:
        """On one connection, always the same."""
        answer = self._connection.exchange(
            PRODUCE, self.request(records), self._deadline(), version=version
        )
        (only,) = answer.partitions
        return only

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    # What looks into batches is loaded for the first of them; a slow machine must not lose its
    # session over that.
    patient = (("zookeeper.session.timeout.ms", "15000"),)
    with running_cluster(
        tmp_path_factory.mktemp("hostile"), brokers=1, settings=patient
    ) as cluster:
        limit = {"max.message.bytes": str(MAX_MESSAGE_BYTES)}
        create_topic(cluster, "plain", replication_factor=1, config=limit)
        limit["cleanup.policy"] = "compact"
        create_topic(cluster, "compacted", replication_factor=1, config=limit)
        yield cluster


@pytest.fixture(scope="module")
def neighbour(broker):
    """A producer whose connections must survive."""
    errors: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "log_level": 0,
            "error_cb": lambda error: errors.append(str(error)),
        }
    )
    create_topic(broker, "neighbour", replication_factor=1)

    def assert_unharmed() -> None:
        outcomes = []
        producer.produce("neighbour", b"x", on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(30) == 0
        assert outcomes == [None]
        assert errors == []

    return assert_unharmed


def assert_refused(hostile: Hostile, data: bytes | None, code: ErrorCode) -> None:
    before = log_bytes(hostile.folder)
    for version in VERSIONS:
        answer = hostile.produce(data, version=version)
        assert ErrorCode.of(answer.error_code) is code, version
        assert answer.base_offset == -1
        if version >= FIRST_VERSION_WITH_MESSAGE:
            assert answer.error_message
            assert "\n" not in answer.error_message
    assert log_bytes(hostile.folder) == before


@pytest.mark.parametrize("topic", ["plain", "compacted"])
def test_hostile_batches_get_their_code_and_change_nothing(broker, neighbour, topic):
    pid = broker.state.brokers[0].pid
    hostile = Hostile(broker, topic)
    refused: dict[str, tuple[bytes | None, ErrorCode]] = {
        "null": (None, NULL_RECORDS),
        **REFUSED,
        **({} if topic == "plain" else refused_by_compacted_topics()),
    }
    assert hostile.produce(GOOD).error_code == 0
    for data, code in refused.values():
        assert_refused(hostile, data, code)
    neighbour()
    for data in ODD_BUT_FINE.values():
        answer = hostile.produce(data)
        assert answer.error_code == 0
        assert answer.base_offset >= 0
    end = hostile.produce(GOOD).base_offset + 3
    stored = [header for _, header in iter_headers(log_bytes(hostile.folder))]
    assert stored[-1].next_offset == end == sum(header.records_count for header in stored)
    hostile.close()
    assert broker.state.brokers[0].pid == pid


def test_a_new_producer_that_does_not_begin_at_0_is_refused_once(broker):
    """One whose state is lost sends the batch again; nothing before it may be on its way."""
    hostile = Hostile(broker, "plain")
    for number, version in enumerate(VERSIONS):
        first = batch(producer=(1_000 + number, 0, 9))
        before = log_bytes(hostile.folder)
        refused = hostile.produce(first, version=version)
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS, version
        assert log_bytes(hostile.folder) == before
        assert hostile.produce(first, version=version).error_code == 0, version
    hostile.close()


def test_messages_of_old_versions_are_refused_in_their_own_words(broker):
    hostile = Hostile(broker, "plain")
    before = log_bytes(hostile.folder)
    for version in (0, 1, 2):
        for data in (GOOD, REFUSED["messages of magic 0"][0], REFUSED["messages of magic 1"][0]):
            answer = hostile.produce(data, version=version)
            code = ErrorCode.of(answer.error_code)
            assert code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert log_bytes(hostile.folder) == before
    hostile.close()


def resident_bytes(pid: int, field: str) -> int:
    """Linux counts KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith(field + ":")]
    return int(line.split()[1]) << 10


def test_bombs_do_not_fill_a_broker(broker, neighbour):
    pid = broker.state.brokers[0].pid
    hostile = Hostile(broker, "compacted")
    before_bytes = resident_bytes(pid, "VmRSS")
    value = batch(bomb(), count=1, attributes=int(Codec.ZSTD))
    many_headers = batch(compressed(headers(31 << 20)), count=1, attributes=int(Codec.ZSTD))
    assert max(len(value), len(many_headers)) < MAX_MESSAGE_BYTES
    for _ in range(BOMBS):
        answer = hostile.produce(value)
        assert ErrorCode.of(answer.error_code) is ErrorCode.MESSAGE_TOO_LARGE
        assert hostile.produce(many_headers).error_code == 0
    # In one request they are one bomb: together they decompress to half a GiB.
    answer = hostile.produce(many_headers * (MAX_MESSAGE_BYTES // len(many_headers)))
    assert ErrorCode.of(answer.error_code) is ErrorCode.MESSAGE_TOO_LARGE
    assert resident_bytes(pid, "VmHWM") - before_bytes < GROWTH_MAX_BYTES
    neighbour()
    hostile.close()


@settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(changes=mutations, version=st.sampled_from(VERSIONS))
def test_any_change_to_a_request_changes_the_log_only_where_it_succeeds(broker, changes, version):
    hostile = Hostile(broker, "plain")
    before = log_bytes(hostile.folder)
    # The header stays: which request it is, and which version its answer has.
    pieces = encode_request_frame(PRODUCE, version, 1, "hostile", hostile.request(GOOD, acks=1))
    frame = b"".join(bytes(piece) for piece in pieces)
    head = frame[SIZE : SIZE + 10 + len("hostile") + (version >= 9)]
    body = head + mutated(frame[SIZE + len(head) :], changes)
    succeeded = send(hostile, len(body).to_bytes(SIZE) + body, version)
    after = log_bytes(hostile.folder)
    assert after[: len(before)] == before
    if not succeeded:
        assert after == before
    added = memoryview(after)[len(before) :]
    assert len(decode_batches(added)) == 3 * sum(1 for _ in iter_headers(added))
    hostile.close()
    assert Hostile(broker, "neighbour").produce(GOOD).error_code == 0


def send(hostile: Hostile, frame: bytes, version: int) -> bool:
    """Whether there may be an append: it was answered as one, or not at all (acks=0)."""
    socket = hostile.connect().socket
    deadline = Deadline.after(2000)
    try:
        socket.send([frame], deadline)
        answer = parse_response(PRODUCE, version, memoryview(socket.receive(deadline)))
    except HeadraceError:
        return True
    finally:
        socket.close()
    return any(partition.error_code == 0 for partition in answer.partitions)
