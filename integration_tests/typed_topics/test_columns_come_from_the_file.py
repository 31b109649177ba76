"""Frames with some columns, as real brokers send them: pieces of files, to a slow reader."""

import time
from typing import Any

import numpy as np
import pyarrow as pa

from integration_tests.support.cluster_support import admin, create_topic, leader_of
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, new_schema
from storage_engine.net.blocking import BlockingConnection
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis import fetch, produce
from storage_engine.protocol.apis.describe_schemas import API as DESCRIBE_SCHEMAS
from storage_engine.protocol.apis.describe_schemas import DescribeSchemasRequest
from storage_engine.protocol.framing import encode_request_frame, parse_response
from storage_engine.protocol.records.record_batch import Codec
from storage_engine.protocol.typed.projection import WANT_FRAMES, TypedWant
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan
from storage_engine.protocol.typed.typed_encoder import iter_typed

TOPIC = "typed-columns"
ROWS = 100_000
BATCHES = 3
SCHEMA = new_schema(parse_ddl("id BIGINT NOT NULL, noise BIGINT, more BIGINT, small TINYINT"))


class Asker:
    """Asks one broker, one request after the other."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = BlockingConnection.open(host, port, Deadline.after(10_000))

    def ask(self, spec: Any, version: int, request: Any, *, pause_s: float = 0) -> Any:
        frame = encode_request_frame(spec, version, 1, "test", request)
        self._connection.send(frame, Deadline.after(30_000))
        time.sleep(pause_s)
        answer = self._connection.receive(Deadline.after(60_000))
        return parse_response(spec, version, answer)

    def close(self) -> None:
        self._connection.close()


def leader_of_typed(cluster: Any) -> Asker:
    client = admin(cluster)
    leader = client.list_topics(TOPIC, timeout=30).brokers[leader_of(client, TOPIC)]
    return Asker(leader.host, leader.port)


def batches(topic_id: Any, noise: np.ndarray) -> list[bytes]:
    made = []
    for number in range(BATCHES):
        part = slice(number * ROWS, (number + 1) * ROWS)
        rows = pa.record_batch(
            {
                "id": np.arange(part.start, part.stop),
                "noise": noise[part],
                "more": noise[part],
                "small": np.zeros(ROWS, np.int8),
            }
        )
        encoded = iter_typed(
            rows, SCHEMA, SCHEMA.latest, topic_id, batch_bytes=64 << 20, compression=Codec.ZSTD
        )
        made += [bytes(each.data) for each in encoded]
    assert len(made) == BATCHES
    return made


def test_columns_come_from_the_file_to_a_reader_that_takes_them_slowly(cluster):
    settings = {SCHEMA_SETTING: SCHEMA.to_json(), "max.message.bytes": str(64 << 20)}
    create_topic(cluster, TOPIC, config=settings)
    noise = np.random.default_rng(1).integers(0, 1 << 62, BATCHES * ROWS)
    leader = leader_of_typed(cluster)
    (described,) = leader.ask(DESCRIBE_SCHEMAS, 0, DescribeSchemasRequest(topics=(TOPIC,))).topics
    for batch in batches(described.topic_id, noise):
        request = produce.ProduceRequest(
            None, -1, 30_000, [produce.ProducePartition(TOPIC, 0, memoryview(bytearray(batch)))]
        )
        (answer,) = leader.ask(produce.API, 9, request).partitions
        assert answer.error_code == 0, answer
    want = TypedWant(WANT_FRAMES, (2,))

    def fetched(offset: int, *, pause_s: float = 0) -> Any:
        wanted = [fetch.FetchPartition(TOPIC, 0, offset, 50 << 20, want=want)]
        request = fetch.FetchRequest(1000, 1, 50 << 20, wanted)
        return leader.ask(fetch.BY_NAME, 12, request, pause_s=pause_s).partitions[0]

    reading = plan(SCHEMA, ["noise"])
    for pause_s in (0, 0.5):
        answer = fetched(0, pause_s=pause_s)
        assert BATCHES * ROWS * 8 < len(answer.records) < BATCHES * ROWS * 8.2
        decoded = list(
            iter_typed_decoded(answer.records, reading, framed=True, topic_schema=SCHEMA)
        )
        values = np.concatenate([each.batch.column(0).to_numpy() for each in decoded])
        assert np.array_equal(values, noise)
        assert decoded[-1].next_offset == BATCHES * ROWS
    assert not fetched(BATCHES * ROWS).records
    leader.close()
