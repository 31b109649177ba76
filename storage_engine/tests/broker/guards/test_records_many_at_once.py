"""Rights are asked for in each produce request of a row, and for each of many topics."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.security.acl_rules import AclOperation, ResourceType
from storage_engine.protocol.apis import produce
from storage_engine.protocol.framing import SIZE_BYTES, parse_response
from storage_engine.tests.broker.guards.guarded_cluster import (
    ADMIN,
    BOB,
    allow_only,
    come_as,
    guarded_cluster,
)
from storage_engine.tests.broker.wire_client import Client, frame
from storage_engine.tests.log.support import make_batch

TOPIC, WRITE = ResourceType.TOPIC, AclOperation.WRITE
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
VERSION = 8
RUN = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = guarded_cluster(tmp_path_factory.mktemp("many"))
    for topic in ("t", "u"):
        assert not made.create_topic(topic).error_code
        made.produced(TopicPartition(topic, 0), b"first")
    yield made
    made.close()


def _run_of_requests(first: int) -> bytes:
    numbers = range(first, first + RUN)
    return b"".join(frame(VERSION, n, [make_batch(payload=b"x" * 30)]) for n in numbers)


def _codes(sent: bytes) -> list[int]:
    """The error codes of all answers in what was sent."""
    codes = []
    view = memoryview(sent)
    while view:
        end = SIZE_BYTES + int.from_bytes(view[:SIZE_BYTES])
        answer = parse_response(produce.API, VERSION, view[SIZE_BYTES:end])
        codes += [row.error_code for row in answer.partitions]
        view = view[end:]
    return codes


def test_requests_in_a_row_are_refused_each(cluster) -> None:
    client = Client(cluster)
    client.connection.principal = BOB
    log = cluster[1].replicas.get(TopicPartition("t", 0)).log
    before = log.log_end_offset
    allow_only(cluster, [])
    client.receive(_run_of_requests(0))
    allow_only(cluster, [(WRITE, TOPIC, "t")])
    client.receive(_run_of_requests(RUN))
    allow_only(cluster, [(WRITE, TOPIC, "u")])
    client.receive(_run_of_requests(2 * RUN))
    codes = _codes(client.end())
    assert codes == [DENIED] * RUN + [0] * RUN + [DENIED] * RUN
    assert log.log_end_offset == before + RUN


def test_a_request_for_many_topics_is_written_where_it_may_be(cluster) -> None:
    allow_only(cluster, [(WRITE, TOPIC, "t")])
    come_as(cluster, BOB)
    topics = ["t", *(f"other-{number}" for number in range(30))]
    items = [produce.ProducePartition(topic, 0, make_batch()) for topic in topics]
    asked = produce.ProduceRequest(None, 1, 1000, items)
    rows = cluster.answer(cluster.ask(1, produce.API, VERSION, asked)).partitions
    codes = {row.topic: row.error_code for row in rows}
    assert codes == {topic: 0 if topic == "t" else DENIED for topic in topics}
    come_as(cluster, ADMIN)
