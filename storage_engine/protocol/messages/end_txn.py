"""EndTxn, versions 0-5; written by `.ci/messages.py`."""

from dataclasses import dataclass

from storage_engine.protocol.apis.fields import boolean, int16, int32, int64, string
from storage_engine.protocol.apis.struct_codec import api


# Version 1 is the same as version 0.
# Version 2 adds the support for new error code PRODUCER_FENCED.
# Version 3 enables flexible versions.
# Version 4 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
# Version 5 enables bumping epoch on every transaction (KIP-890 Part 2)
@dataclass(slots=True, kw_only=True)
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


# Starting in version 1, on quota violation, brokers send out responses before throttling.
# Version 2 adds the support for new error code PRODUCER_FENCED.
# Version 3 enables flexible versions.
# Version 4 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
# Version 5 enables bumping epoch on every transaction (KIP-890 Part 2), so producer ID and epoch
# are included in the response.
@dataclass(slots=True, kw_only=True)
class EndTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(5, default=-1)
    producer_epoch: int = int16(5, default=-1)


API = api(26, EndTxnRequest, EndTxnResponse)
