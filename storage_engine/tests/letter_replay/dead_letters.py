"""Dead letters on a fake cluster, and the coordinator of their replay."""

from typing import Any

import pyarrow as pa

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.commit_batch import CommitBatchResponse
from storage_engine.protocol.apis.join_batch import JoinBatchResponse
from storage_engine.protocol.apis.micro_batch_fields import BatchResponse
from storage_engine.protocol.apis.registry import OWN_RANGES
from storage_engine.protocol.dead_letter_headers import OFFSET, PARTITION, REASON, TIMESTAMP, TOPIC
from storage_engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from storage_engine.protocol.messages.find_coordinator import FindCoordinatorResponse
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.tests.client.fake_cluster import FakeCluster

DEAD = "dead"


def add_letters(
    fake: FakeCluster, *letters: tuple[str | None, int, bytes], partition: int = 0
) -> None:
    """One batch of letters in a partition of `dead`: topic of origin (None: it does not say),
    partition of origin, and reason. The value is the offset."""
    log = fake.partition(DEAD, partition)
    rows = []
    for topic, number, reason in letters:
        named = [] if topic is None else [(TOPIC, topic.encode()), (PARTITION, b"%d" % number)]
        named += [(OFFSET, b"7"), (TIMESTAMP, b"5"), (REASON, reason), ("own", b"x")]
        rows.append([{"key": name, "value": value} for name, value in named])
    values = [b"%d" % (log.end_offset + number) for number in range(len(letters))]
    (batch,) = encode_batches(
        pa.array(values, pa.binary()), None, pa.array(rows, HEADERS_TYPE), now_ms=1
    )
    log.append(bytes(batch.data))


def records_in(fake: FakeCluster, topic: str, partition: int = 0) -> Any:
    return decode_batches(fake.partition(topic, partition).batches, include_headers=True)


def values_in(fake: FakeCluster, topic: str, partition: int = 0) -> list[bytes]:
    found: list[bytes] = records_in(fake, topic, partition).values.to_pylist()
    return found


class Coordinator:
    """Commits what it is asked to commit. `origins`: the last offset that is done."""

    def __init__(self, fake: FakeCluster) -> None:
        self._fake = fake
        self.origins: dict[TopicPartition, int] = {}
        self.commits: list[int] = []
        self.aborts = 0
        self._producer_id = 100
        fake.api_versions |= OWN_RANGES
        fake.admin = self._answer

    def _answer(self, _broker: int, api: str, message: Any) -> Any:
        if api == "FindCoordinator":
            port = self._fake.servers[1].port
            return FindCoordinatorResponse(
                error_code=0, error_message=None, node_id=1, host="127.0.0.1", port=port
            )
        if api == "DescribeSchemas":
            return self._fake._described_schemas(message)
        if api == "JoinBatch":
            self._producer_id += 1
            return JoinBatchResponse(
                error_code=0,
                producer_id=self._producer_id,
                producer_epoch=0,
                origins=self.origins,
            )
        if api == "AddPartitionsToTxn":
            row = AddPartitionsToTxnPartitionResult
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            row(partition_index=number, partition_error_code=0)
                            for number in topic.partitions
                        ],
                    )
                    for topic in message.v3_and_below_topics
                ]
            )
        if api == "CommitBatch":
            self.commits.append(message.batch)
            self.origins = {**self.origins, **message.origins}
            return CommitBatchResponse(error_code=ErrorCode.NONE)
        self.aborts += 1
        return BatchResponse(error_code=0)
