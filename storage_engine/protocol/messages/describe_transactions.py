"""DescribeTransactions, versions 0-0; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    int16,
    int32,
    int32s,
    int64,
    string,
    strings,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


@dataclass(slots=True, kw_only=True)
class DescribeTransactionsRequest:
    transactional_ids: Sequence[str] = strings()


@dataclass(slots=True, kw_only=True)
class DescribeTransactionsResponse:
    @dataclass(slots=True, kw_only=True)
    class TransactionState:
        @dataclass(slots=True, kw_only=True)
        class TopicData:
            topic: str = string()
            partitions: Sequence[int] = int32s()

        error_code: int = int16()
        transactional_id: str = string()
        transaction_state: str = string()
        transaction_timeout_ms: int = int32()
        transaction_start_time_ms: int = int64()
        producer_id: int = int64()
        producer_epoch: int = int16()
        topics: Sequence[TopicData] = structs(TopicData)

    throttle_time_ms: int = int32()
    transaction_states: Sequence[TransactionState] = structs(TransactionState)


API = api(65, DescribeTransactionsRequest, DescribeTransactionsResponse)
