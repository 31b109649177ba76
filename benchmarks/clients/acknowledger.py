"""A peer that acknowledges what producers send and keeps none of it, to measure how fast the
producers are without a broker.

It looks to them like three brokers of a cluster, with the topic that they ask for. It answers what
a producer sends, ApiVersions, Metadata, InitProducerId and Produce, and closes a connection that
asks for anything else. As a program it says on stdout where it listens, and ends with its stdin:

    python -m benchmarks.clients.acknowledger --partitions 6
"""

import argparse
import selectors
import socket
import struct
import sys

from storage_engine.core.errors import InvalidRequestError
from storage_engine.net.frames import joined
from storage_engine.protocol.apis import api_versions, metadata, produce
from storage_engine.protocol.apis.registry import APIS
from storage_engine.protocol.framing import (
    SIZE_BYTES,
    encode_response_frame,
    parse_request_header,
)
from storage_engine.protocol.messages import init_producer_id

HOST = "127.0.0.1"
BROKERS = 3

_SERVED = (produce.API, metadata.API, api_versions.API, init_producer_id.API)
_RECEIVE_BYTES = 1 << 20
_MOST_FRAME_BYTES = 100 << 20
"""`socket.request.max.bytes` of Kafka."""
_SIZE = struct.Struct(">I")
_RECORD_COUNT_AT = 57
_RECORD_COUNT = struct.Struct(">i")
"""The place of the number of records in a record batch of magic 2, and its format."""
_PRODUCER_ID = 1


class Acknowledger:
    """Answers the frames of all connections, one after the other."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._listeners = [socket.create_server((HOST, 0)) for _ in range(BROKERS)]
        self._ends: dict[tuple[str, int], int] = {}
        self._received: dict[socket.socket, bytearray] = {}
        self._selector = selectors.DefaultSelector()
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ, self._accept)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports())

    def serve(self, until: int) -> None:
        """Serve until the descriptor `until` is at its end."""
        self._selector.register(until, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fd == until:
                    return
                key.data(key.fileobj)

    def close(self) -> None:
        for each in [*self._listeners, *self._received]:
            each.close()
        self._selector.close()

    def _ports(self) -> list[int]:
        return [listener.getsockname()[1] for listener in self._listeners]

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received[connection] = bytearray()
        self._selector.register(connection, selectors.EVENT_READ, self._read)

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(_RECEIVE_BYTES)
            received = self._received[connection]
            received += data
            taken, answers = self._answers(received)
            connection.sendall(answers)
        except (OSError, InvalidRequestError):
            data = b""
        if data:
            del received[:taken]
            return
        self._selector.unregister(connection)
        del self._received[connection]
        connection.close()

    def _answers(self, received: bytearray) -> tuple[int, bytes]:
        """Return the number of bytes in all whole frames, and the answers to them."""
        at = 0
        answers: list[bytes] = []
        with memoryview(received) as whole:
            while len(whole) - at >= SIZE_BYTES:
                (size,) = _SIZE.unpack_from(whole, at)
                if size > _MOST_FRAME_BYTES:
                    raise InvalidRequestError(f"a frame of {size} bytes")
                start, at_end = at + SIZE_BYTES, at + SIZE_BYTES + size
                if at_end > len(whole):
                    break
                with whole[start:at_end] as frame:
                    answers.append(self._answer(frame))
                at = at_end
        return at, b"".join(answers)

    def _answer(self, frame: memoryview) -> bytes:
        header, body = parse_request_header(frame)
        key, version, number = header.api_key, header.api_version, header.correlation_id
        if key == produce.API.key:
            acknowledged = self._acknowledged(produce.API.decode_request(version, body))
            pieces = encode_response_frame(produce.API, version, number, acknowledged)
        elif key == metadata.API.key:
            cluster = self._cluster(metadata.API.decode_request(version, body))
            pieces = encode_response_frame(metadata.API, version, number, cluster)
        elif key == init_producer_id.API.key:
            given = init_producer_id.InitProducerIdResponse(
                producer_id=_PRODUCER_ID, producer_epoch=0
            )
            pieces = encode_response_frame(init_producer_id.API, version, number, given)
        elif key != api_versions.API.key:
            raise InvalidRequestError(f"{APIS[key].name} is not answered here")
        elif version in api_versions.API.versions:
            served = api_versions.ApiVersionsResponse.of(
                {each.key: each.versions for each in _SERVED}
            )
            pieces = encode_response_frame(api_versions.API, version, number, served)
        else:
            unknown = api_versions.unsupported_version_response()
            pieces = encode_response_frame(api_versions.API, 0, number, unknown)
        return joined(pieces)

    def _acknowledged(self, request: produce.ProduceRequest) -> produce.ProduceResponse:
        answers = []
        for topic, partition, records in request.partitions:
            assert isinstance(records, memoryview)
            base_offset = self._ends.get((topic, partition), 0)
            (count,) = _RECORD_COUNT.unpack_from(records, _RECORD_COUNT_AT)
            self._ends[topic, partition] = base_offset + count
            answers.append(produce.ProducePartitionResponse(topic, partition, 0, base_offset))
        return produce.ProduceResponse(answers)

    def _cluster(self, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
        """Return metadata in which every requested topic exists, with its leaders spread."""
        brokers = [
            metadata.MetadataBroker(broker_id=number, host=HOST, port=port)
            for number, port in enumerate(self._ports())
        ]
        partitions = [
            metadata.MetadataPartition(
                partition=number, leader=number % BROKERS, replicas=[0, 1, 2], isr=[0, 1, 2]
            )
            for number in range(self._partitions)
        ]
        topics = [
            metadata.MetadataTopic(topic=name, partitions=partitions)
            for name in request.topics or ()
        ]
        return metadata.MetadataResponse(
            brokers=brokers, topics=topics, controller_id=0, cluster_id="acknowledger"
        )


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=6)
    acknowledger = Acknowledger(parser.parse_args().partitions)
    try:
        print(acknowledger.bootstrap_servers, flush=True)
        acknowledger.serve(sys.stdin.fileno())
    finally:
        acknowledger.close()


if __name__ == "__main__":
    main()
