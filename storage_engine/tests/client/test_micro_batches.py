"""What a sink's tasks and driver send, and what they make of the answers (R-SPARK2)."""

from types import SimpleNamespace
from typing import Any

import pytest

from storage_engine.client.connection import NotServedError
from storage_engine.client.micro_batches import (
    AlreadyCommitted,
    CommitOutcome,
    MicroBatches,
    MicroBatchMember,
)
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.errors import (
    ConfigError,
    DeadlineExceededError,
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import named_write
from storage_engine.protocol.apis.commit_batch import CommitBatchResponse
from storage_engine.protocol.apis.join_batch import JoinBatchResponse
from storage_engine.protocol.apis.micro_batch_fields import BatchResponse
from storage_engine.protocol.apis.registry import OWN_RANGES, spec_for
from storage_engine.protocol.apis.spec import VersionRange
from storage_engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.tests.client.support.batches import numbered_batch
from storage_engine.tests.client.support.coordinators import found_at

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = 77
SOURCE = TopicPartition("source", 0)


@pytest.fixture
def coordinator(fake) -> SimpleNamespace:
    """Brokers that answer for it: `codes` for the next requests, then yes."""
    state = SimpleNamespace(broker=1, codes=[], asked=[])
    fake.api_versions |= OWN_RANGES

    def answer(broker_id: int, api: str, message: Any) -> Any:
        if api == "FindCoordinator":
            return found_at(fake, state.broker)
        state.asked.append((broker_id, api, message))
        code = state.codes.pop(0) if state.codes else ErrorCode.NONE
        if broker_id != state.broker:
            code = ErrorCode.NOT_COORDINATOR
        if api == "AddPartitionsToTxn":
            return _enlisted(message, code)
        if api == "JoinBatch":
            return JoinBatchResponse(
                error_code=int(code), producer_id=PRODUCER, producer_epoch=0, origins={SOURCE: 5}
            )
        if api == "CommitBatch":
            return CommitBatchResponse(error_code=int(code))
        return BatchResponse(error_code=int(code))

    fake.admin = answer
    fake.add_topic("t", [1, 2])
    return state


def _enlisted(message: Any, code: ErrorCode) -> Any:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=number, partition_error_code=int(code)
                    )
                    for number in topic.partitions
                ],
            )
            for topic in message.v3_and_below_topics
        ]
    )


def test_partitions_are_enlisted_before_what_is_written_as_part_of_the_transaction(
    fake, cluster, coordinator
):
    member = MicroBatches(cluster, "sink", "query").join(3)
    assert isinstance(member, MicroBatchMember) and (member.id, member.origins) == (
        (PRODUCER, 0),
        {SOURCE: 5},
    )
    with BatchWriter(cluster, transaction=member) as writer:
        for number in range(3):
            writer.append(T0, numbered_batch(number))
            writer.append(T1, numbered_batch(number))
    order = [asked.api for asked in fake.asked]
    assert order.index("AddPartitionsToTxn") < order.index("Produce")
    enlisted = [m for _, api, m in coordinator.asked if api == "AddPartitionsToTxn"]
    assert sum(len(t.partitions) for m in enlisted for t in m.v3_and_below_topics) == 2
    produced = [asked.message for asked in fake.asked if asked.api == "Produce"]
    assert {message.transactional_id for message in produced} == {member.transactional_id}
    for tp in (T0, T1):
        headers = [read_header(batch) for batch in fake.partition(*tp).batches]
        assert [header.base_sequence for header in headers] == [0, 3, 6]
        assert all(header.is_transactional for header in headers)
        assert {(h.producer_id, h.producer_epoch) for h in headers} == {(PRODUCER, 0)}


def test_a_transaction_needs_all_acknowledgements_and_idempotence(cluster, coordinator):
    member = MicroBatches(cluster, "sink", "query").join(0)
    for impossible in ({"acks": 1}, {"idempotent": False}):
        with pytest.raises(ConfigError):
            BatchWriter(cluster, transaction=member, **impossible)


def test_a_writer_never_goes_on_as_another_producer(fake, cluster, coordinator):
    member = MicroBatches(cluster, "sink", "query").join(0)
    fake.partition(*T0).errors.append(ErrorCode.UNKNOWN_PRODUCER_ID)
    with pytest.raises(KafkaError) as failure, BatchWriter(cluster, transaction=member) as writer:
        writer.append(T0, numbered_batch(0))
    assert failure.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
    assert fake.count("InitProducerId") == 0


def test_a_partition_that_is_not_enlisted_is_not_written_to(fake, cluster, coordinator):
    member = MicroBatches(cluster, "sink", "query").join(0)
    coordinator.codes = [ErrorCode.INVALID_TXN_STATE]
    with pytest.raises(KafkaError) as failure, BatchWriter(cluster, transaction=member) as writer:
        writer.append(T0, numbered_batch(0))
    assert failure.value.code is ErrorCode.INVALID_TXN_STATE
    assert fake.count("Produce") == 0


def test_announced_partitions_are_enlisted_by_one_request(fake, cluster, coordinator):
    member = MicroBatches(cluster, "sink", "query").join(3)
    with BatchWriter(cluster, transaction=member) as writer:
        writer.announce([T0, T1])
        writer.announce([T1])
        for tp in (T0, T1):
            writer.append(tp, numbered_batch(0))
            writer.flush()
    enlisted = [message for _, api, message in coordinator.asked if api == "AddPartitionsToTxn"]
    assert len(enlisted) == 1
    (topic,) = enlisted[0].v3_and_below_topics
    assert (topic.name, sorted(topic.partitions)) == ("t", [0, 1])


def test_the_identical_request_goes_to_the_next_coordinator(fake, cluster, coordinator):
    batches = MicroBatches(cluster, "sink", "query")
    batches.heartbeat(4)
    coordinator.broker = 2
    coordinator.codes = [ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS]
    assert (
        batches.commit(4, [(1, 0), (2, 0)], origins={SOURCE: 9}).outcome is CommitOutcome.COMMITTED
    )
    commits = [(broker, m) for broker, api, m in coordinator.asked if api == "CommitBatch"]
    assert [broker for broker, _ in commits] == [1, 2, 2]
    assert len({repr(message) for _, message in commits}) == 1


def test_what_is_committed_already_is_no_failure(cluster, coordinator):
    batches = MicroBatches(cluster, "sink", "query")
    coordinator.codes = [ErrorCode.ALREADY_COMMITTED, ErrorCode.ALREADY_COMMITTED]
    assert batches.join(0) == AlreadyCommitted({SOURCE: 5})
    assert batches.commit(0, [(1, 0)]).outcome is CommitOutcome.ALREADY_COMMITTED


@pytest.mark.parametrize("code", [ErrorCode.MEMBER_LOST, ErrorCode.NOT_COMMITTED])
def test_a_final_refusal_is_told_at_once(cluster, coordinator, code):
    coordinator.codes = [code]
    with pytest.raises(KafkaError, match=r"CommitBatch of sink 'sink', query 'query'") as failure:
        MicroBatches(cluster, "sink", "query").commit(0, [(1, 0)])
    assert failure.value.code is code
    assert len(coordinator.asked) == 1


def test_retries_end_with_the_deadline(cluster, coordinator):
    coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS] * 1000
    with pytest.raises(DeadlineExceededError, match="CommitBatch of sink 'sink'"):
        MicroBatches(cluster, "sink", "query", deadline_ms=500).commit(0, [(1, 0)])


def test_a_broker_of_another_version_is_no_broker_of_another_kind(fake, cluster, coordinator):
    key = spec_for(20_000).key
    fake.api_versions[key] = VersionRange(1, 1)
    with pytest.raises(UnsupportedVersionError, match="in versions 1-1") as other:
        MicroBatches(cluster, "sink", named_write("t", 5)).join(5)
    assert not isinstance(other.value, NotServedError)


def test_a_broker_of_another_kind_serves_no_micro_batches(fake, cluster, coordinator):
    del fake.api_versions[spec_for(20_000).key]
    with pytest.raises(NotServedError, match="serves JoinBatch not at all"):
        MicroBatches(cluster, "sink", "query").join(5)
