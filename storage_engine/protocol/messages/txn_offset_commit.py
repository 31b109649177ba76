"""TxnOffsetCommit, versions 0-5; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    int16,
    int32,
    int64,
    nullable_string,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 1 is the same as version 0.
# Version 2 adds the committed leader epoch.
# Version 3 adds the member.id, group.instance.id and generation.id.
# Version 4 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
# Version 5 is the same as version 4 (KIP-890). Note when TxnOffsetCommit requests are used in
# transaction, if
# transaction V2 (KIP_890 part 2) is enabled, the TxnOffsetCommit request will also include the
# function for a
# AddOffsetsToTxn call. If V2 is disabled, the client can't use TxnOffsetCommit request version
# higher than 4 within
# a transaction.
@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitRequest:
    @dataclass(slots=True, kw_only=True)
    class TxnOffsetCommitRequestTopic:
        @dataclass(slots=True, kw_only=True)
        class TxnOffsetCommitRequestPartition:
            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32(2, default=-1)
            committed_metadata: str | None = nullable_string()

        name: str = string()
        partitions: Sequence[TxnOffsetCommitRequestPartition] = structs(
            TxnOffsetCommitRequestPartition
        )

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(3, default=-1)
    member_id: str = string(3)
    group_instance_id: str | None = nullable_string(3, default=None)
    topics: Sequence[TxnOffsetCommitRequestTopic] = structs(TxnOffsetCommitRequestTopic)


# Starting in version 1, on quota violation, brokers send out responses before throttling.
# Version 2 is the same as version 1.
# Version 3 adds illegal generation, fenced instance id, and unknown member id errors.
# Version 4 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
# Version 5 is the same with version 3 (KIP-890).
@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitResponse:
    @dataclass(slots=True, kw_only=True)
    class TxnOffsetCommitResponseTopic:
        @dataclass(slots=True, kw_only=True)
        class TxnOffsetCommitResponsePartition:
            partition_index: int = int32()
            error_code: int = int16()

        name: str = string()
        partitions: Sequence[TxnOffsetCommitResponsePartition] = structs(
            TxnOffsetCommitResponsePartition
        )

    throttle_time_ms: int = int32()
    topics: Sequence[TxnOffsetCommitResponseTopic] = structs(TxnOffsetCommitResponseTopic)


API = api(28, TxnOffsetCommitRequest, TxnOffsetCommitResponse)
