"""Requests of producers: which of several error codes counts."""

import pytest

from storage_engine.client.producer.producer_requests import (
    enlist_request,
    enlisted_codes,
    new_producer,
    worst,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

FINAL, RETRIABLE = ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("codes", "found"),
    [
        ([], ErrorCode.NONE),
        ([0, 0], ErrorCode.NONE),
        ([0, RETRIABLE], RETRIABLE),
        ([RETRIABLE, FINAL, RETRIABLE], FINAL),
    ],
)
def test_a_final_error_counts_before_a_retriable_one(codes, found):
    assert worst(codes) is found


def test_partitions_that_were_not_attempted_have_no_code_of_their_own():
    rows = [
        AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=int(code))
        for number, code in enumerate([ErrorCode.OPERATION_NOT_ATTEMPTED, FINAL, 0])
    ]
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=rows)
    answer = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
    assert enlisted_codes(answer) == [FINAL, 0]


def test_partitions_are_enlisted_by_topic():
    tps = [TopicPartition("t", 1), TopicPartition("u", 0), TopicPartition("t", 0)]
    message = enlist_request("id", 7, 2, tps)
    assert [(each.name, list(each.partitions)) for each in message.v3_and_below_topics] == [
        ("t", [1, 0]),
        ("u", [0]),
    ]


def test_a_producer_id_is_asked_for_until_a_broker_gives_one(fake, cluster):
    fake.fault = lambda asked: (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if (asked.api, asked.number) == ("InitProducerId", 1)
        else None
    )
    assert new_producer(cluster).producer_id > 1000
    assert fake.count("InitProducerId") == 2
