"""AddOffsetsToTxn, versions 0-4; written by `.ci/messages.py`."""

from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int16, int32, int64, string
from storage_engine.protocol.apis.struct_codec import api


# Version 1 is the same as version 0.
# Version 2 adds the support for new error code PRODUCER_FENCED.
# Version 3 enables flexible versions.
# Version 4 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
@dataclass(slots=True, kw_only=True)
class AddOffsetsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


# Starting in version 1, on quota violation brokers send out responses before throttling.
# Version 2 adds the support for new error code PRODUCER_FENCED.
# Version 3 enables flexible versions.
# Version 4 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
@dataclass(slots=True, kw_only=True)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()


API = api(25, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
