"""Batches of some KiB that decompress to much, by one producer to one compacted topic, hold up no
small writes of another to another one."""

import uuid

from integration_tests.support.cluster_support import admin, create_topic, leader_of
from storage_engine.client.connection import BrokerConnection
from storage_engine.client.security.client_sockets import ClientSockets
from storage_engine.net.deadline import Deadline
from storage_engine.net.limits import BufferPool
from storage_engine.protocol.apis import produce
from storage_engine.protocol.framing import parse_response
from storage_engine.tests.broker.replicas.test_producer_appends import batch_of

VERSION = 8
CONNECTIONS, BOMBS_EACH, SMALL = 4, 8, 20
LIMIT_MS = 240_000


def _connect(cluster, broker_id: int) -> BrokerConnection:
    entry = cluster.state.broker(broker_id)
    address = entry.host, entry.port
    deadline = Deadline.after(LIMIT_MS)
    return BrokerConnection.open(address, "large", deadline, BufferPool(), ClientSockets(None))


def _request(topic: str, partition: int, batch: memoryview) -> produce.ProduceRequest:
    item = produce.ProducePartition(topic, partition, batch)
    return produce.ProduceRequest(None, 1, LIMIT_MS, [item])


def _answered(connection: BrokerConnection) -> int:
    """How many answers have come by now."""
    count = 0
    while (frame := connection.socket.receive_nowait()) is not None:
        assert not parse_response(produce.API, VERSION, frame).partitions[0].error_code
        count += 1
    return count


def test_small_writes_are_answered_amid_large_ones(cluster) -> None:
    large, small = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("large", "small"))
    settings = {"cleanup.policy": "compact"}
    create_topic(cluster, large, replication_factor=1, config=settings)
    create_topic(cluster, small, partitions=3, replication_factor=1, config=settings)
    asked = admin(cluster)
    leader = leader_of(asked, large)
    partition = next(n for n in range(3) if leader_of(asked, small, n) == leader)
    deadline = Deadline.after(LIMIT_MS)
    bomb, record = batch_of(bytes(40 << 20), codec="gzip"), batch_of(b"x", codec="gzip")
    crowd = [_connect(cluster, leader) for _ in range(CONNECTIONS)]
    other = _connect(cluster, leader)
    for _ in range(BOMBS_EACH):
        for connection in crowd:
            connection.send(produce.API, _request(large, 0, bomb), deadline, version=VERSION)
    for _ in range(SMALL):
        answer = other.exchange(
            produce.API, _request(small, partition, record), deadline, version=VERSION
        )
        assert not answer.partitions[0].error_code
    # First come, first served would have answered all of the large ones before the first.
    assert sum(map(_answered, crowd)) < CONNECTIONS * BOMBS_EACH // 2
    for connection in (*crowd, other):
        connection.close()
