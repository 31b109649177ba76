"""R-LOG1, R-LOG6: segment files are what Kafka's are. An independent reader decodes them,
and a producer's batch lies in them byte for byte but for the fields that are the broker's.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka.record import MemoryRecords

from integration_tests.support.cluster_support import create_topic, running_cluster
from integration_tests.support.settings_support import folder_of, segments
from integration_tests.support.stored_logs import log_bytes
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.framing import parse_request_header
from storage_engine.protocol.records.record_batch import (
    TIMESTAMP_TYPE_BIT,
    crc_matches,
    iter_headers,
)
from storage_engine.tests.sampling import in_full
from storage_engine.tools.local.broker_settings import read_settings, write_settings
from storage_engine.tools.local.local_cluster import LocalCluster

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
IN_FULL = {"gzip", "lz4"}
"""Foreign clients read these in `clients/test_foreign_clients_read_what_others_wrote.py`."""
EACH_CODEC = pytest.mark.parametrize(
    "codec", [pytest.param(each, marks=[in_full] if each in IN_FULL else []) for each in CODECS]
)
SEGMENT_BYTES = 20_000
RECORDS = 400

LENGTH = slice(8, 12)
FROM_MAGIC = slice(16, None)
"""Before it lie the base offset and the leader epoch, which are the broker's, and the length."""
NOT_STAMPED = (slice(8, 12), slice(16, 17), slice(23, 35), slice(43, None))
"""What stays with LogAppendTime: not the CRC, the attributes and the largest timestamp."""

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def record(producer: str, number: int) -> Record:
    """Nulls, empty ones, headers of all kinds; values that do not compress to nothing."""
    key = [b"%s-%d" % (producer.encode(), number), None, b""][number % 3]
    value = None if number % 7 == 0 else bytes((number * i * i) % 251 for i in range(number % 200))
    kinds: list[list[tuple[str, bytes | None]]] = [
        [],
        [("number", b"%d" % number)],
        [("empty", b""), ("null", None), ("umlaut ü", b"\xff\x00")],
    ]
    return key, value, kinds[number % 4 % 3]


def write(
    servers: str, topic: str, name: str, *, idempotent: bool, codec: str, first: int = 0
) -> dict[int, Record]:
    """By the offsets that the producer was told."""
    written: dict[int, Record] = {}
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": idempotent,
            "compression.type": codec,
            "batch.num.messages": 30,
            "linger.ms": 5,
            "log_level": 0,
        }
    )
    for number in range(first, first + RECORDS):
        key, value, headers = record(name, number)

        def delivered(error: object, message: object, number: int = number) -> None:
            assert error is None
            written[message.offset()] = record(name, number)  # type: ignore[attr-defined]

        producer.produce(
            topic, key=key, value=value, headers=headers, partition=0, on_delivery=delivered
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert len(written) == RECORDS
    return written


def decoded_by_kafka_python(path: Path) -> dict[int, Record]:
    found: dict[int, Record] = {}
    batches = MemoryRecords(path.read_bytes())
    while (batch := batches.next_batch()) is not None:
        assert batch.validate_crc()
        for one in batch:
            assert one.offset not in found
            found[one.offset] = one.key, one.value, [tuple(header) for header in one.headers]
    return found


@EACH_CODEC
def test_kafka_python_decodes_our_segment_files(cluster, codec):
    topic = f"decoded-{codec}"
    create_topic(cluster, topic, config={"segment.bytes": str(SEGMENT_BYTES)})
    servers = cluster.bootstrap_servers
    written = write(servers, topic, "one", idempotent=True, codec=codec)
    written |= write(servers, topic, "two", idempotent=True, codec=codec, first=1000)
    written |= write(servers, topic, "three", idempotent=False, codec=codec)
    assert sorted(written) == list(range(3 * RECORDS))
    for broker_id in (1, 2, 3):
        folder = folder_of(cluster, broker_id, topic)
        bases = segments(folder)
        assert len(bases) > 2
        found: dict[int, Record] = {}
        for path in sorted(folder.glob("*.log")):
            part = decoded_by_kafka_python(path)
            assert min(part) == int(path.stem)
            found |= part
        assert found == written


class Tap:
    """A proxy before a broker that keeps what clients send."""

    def __init__(self) -> None:
        self.target = ("", 0)
        """To be set before the first connection."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.sent: list[bytearray] = []
        """Per connection."""
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self.target)
                self._sockets += [client, server]
                kept = bytearray()
                self.sent.append(kept)
                for pair in ((client, server, kept), (server, client, None)):
                    threading.Thread(target=_pump, args=pair, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def batches(self, topic: str) -> list[bytes]:
        """All record batches for the topic that were produced through it."""
        found = []
        for stream in self.sent:
            for frame in _frames(bytes(stream)):
                header, body = parse_request_header(memoryview(frame))
                if header.api_key != PRODUCE.key:
                    continue
                for partition in PRODUCE.decode_request(header.api_version, body).partitions:
                    if partition.topic == topic:
                        data = bytes(partition.records)
                        found += [data[at : at + h.size_in_bytes] for at, h in iter_headers(data)]
        return found


def _pump(source: socket.socket, sink: socket.socket, kept: bytearray | None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if kept is not None:
                kept += data
            sink.sendall(data)


def _frames(stream: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(stream):
        (size,) = struct.unpack_from(">i", stream, position)
        yield stream[position + 4 : position + 4 + size]
        position += 4 + size


@pytest.fixture(scope="module")
def tapped(tmp_path_factory):
    """A broker whose clients all come through a tap."""
    tap = Tap()
    with running_cluster(tmp_path_factory.mktemp("tapped"), brokers=1) as cluster:
        entry = cluster.state.brokers[0]
        tap.target = entry.host, entry.port
        cluster.stop_broker(entry.id)
        config = cluster.directory / entry.config
        listeners = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{tap.port}"}
        write_settings(config, {**read_settings(config), **listeners})
        cluster.start_broker(entry.id)
        yield cluster, tap
    tap.close()


def stored_batches(cluster: LocalCluster, topic: str) -> list[bytes]:
    data = log_bytes(folder_of(cluster, 1, topic))
    return [data[at : at + header.size_in_bytes] for at, header in iter_headers(data)]


@EACH_CODEC
def test_a_batch_of_librdkafka_is_stored_byte_for_byte(tapped, codec):
    cluster, tap = tapped
    topic = f"tapped-{codec}"
    create_topic(cluster, topic, replication_factor=1)
    write(f"127.0.0.1:{tap.port}", topic, "one", idempotent=True, codec=codec)
    sent, stored = tap.batches(topic), stored_batches(cluster, topic)
    assert len(sent) >= RECORDS // 30
    assert [one[FROM_MAGIC] for one in stored] == [one[FROM_MAGIC] for one in sent]
    assert [one[LENGTH] for one in stored] == [one[LENGTH] for one in sent]
    used = {header.compression for one in sent for _, header in iter_headers(one)}
    assert used & {0, CODECS.index(codec)} == used
    assert CODECS.index(codec) in used


def test_log_append_time_changes_attributes_time_and_crc_only(tapped):
    cluster, tap = tapped
    topic = "stamped"
    config = {"message.timestamp.type": "LogAppendTime"}
    create_topic(cluster, topic, replication_factor=1, config=config)
    write(f"127.0.0.1:{tap.port}", topic, "one", idempotent=True, codec="lz4")
    sent, stored = tap.batches(topic), stored_batches(cluster, topic)
    assert len(sent) == len(stored) >= RECORDS // 30
    for was, now in zip(sent, stored, strict=True):
        assert [was[part] for part in NOT_STAMPED] == [now[part] for part in NOT_STAMPED]
        ((_, before),), ((_, after),) = iter_headers(was), iter_headers(now)
        assert after.attributes == before.attributes | TIMESTAMP_TYPE_BIT
        assert crc_matches(now, 0, len(now))
        assert after.crc != before.crc
