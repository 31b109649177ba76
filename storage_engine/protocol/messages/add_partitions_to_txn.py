"""AddPartitionsToTxn, versions 0-5; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    boolean,
    int16,
    int32,
    int32s,
    int64,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnTopic:
    name: str = string()
    partitions: Sequence[int] = int32s()


# Version 1 is the same as version 0.
# Version 2 adds the support for new error code PRODUCER_FENCED.
# Version 3 enables flexible versions.
# Version 4 adds VerifyOnly field to check if partitions are already in transaction and adds support
# to batch multiple transactions.
# Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
# Versions 3 and below will be exclusively used by clients and versions 4 and above will be used by
# brokers.
@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnRequest:
    @dataclass(slots=True, kw_only=True)
    class AddPartitionsToTxnTransaction:
        transactional_id: str = string(4)
        producer_id: int = int64(4)
        producer_epoch: int = int16(4)
        verify_only: bool = boolean(4)
        topics: Sequence[AddPartitionsToTxnTopic] = structs(AddPartitionsToTxnTopic, 4)

    transactions: Sequence[AddPartitionsToTxnTransaction] = structs(
        AddPartitionsToTxnTransaction, 4
    )
    v3_and_below_transactional_id: str = string(0, 3)
    v3_and_below_producer_id: int = int64(0, 3)
    v3_and_below_producer_epoch: int = int16(0, 3)
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = structs(AddPartitionsToTxnTopic, 0, 3)


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnPartitionResult:
    partition_index: int = int32()
    partition_error_code: int = int16()


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnTopicResult:
    name: str = string()
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = structs(
        AddPartitionsToTxnPartitionResult
    )


# Starting in version 1, on quota violation brokers send out responses before throttling.
# Version 2 adds the support for new error code PRODUCER_FENCED.
# Version 3 enables flexible versions.
# Version 4 adds support to batch multiple transactions and a top level error code.
# Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnResponse:
    @dataclass(slots=True, kw_only=True)
    class AddPartitionsToTxnResult:
        transactional_id: str = string(4)
        topic_results: Sequence[AddPartitionsToTxnTopicResult] = structs(
            AddPartitionsToTxnTopicResult, 4
        )

    throttle_time_ms: int = int32()
    error_code: int = int16(4)
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = structs(
        AddPartitionsToTxnResult, 4
    )
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = structs(
        AddPartitionsToTxnTopicResult, 0, 3
    )


API = api(24, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
