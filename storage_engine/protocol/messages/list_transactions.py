"""ListTransactions, versions 0-1; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    int16,
    int32,
    int64,
    int64s,
    string,
    strings,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 1: adds DurationFilter to list transactions older than specified duration
# Version 2: adds TransactionalIdPattern to list transactions with the same pattern(KIP-1152)
@dataclass(slots=True, kw_only=True)
class ListTransactionsRequest:
    state_filters: Sequence[str] = strings()
    producer_id_filters: Sequence[int] = int64s()
    duration_filter: int = int64(1, default=-1)


# Version 1 is the same as version 0 (KIP-994).
# This API can return InvalidRegularExpression (KIP-1152).
@dataclass(slots=True, kw_only=True)
class ListTransactionsResponse:
    @dataclass(slots=True, kw_only=True)
    class TransactionState:
        transactional_id: str = string()
        producer_id: int = int64()
        transaction_state: str = string()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: Sequence[str] = strings()
    transaction_states: Sequence[TransactionState] = structs(TransactionState)


API = api(66, ListTransactionsRequest, ListTransactionsResponse)
