"""InitProducerId, versions 0-4; written by `.ci/messages.py`."""

from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int16, int32, int64, nullable_string
from storage_engine.protocol.apis.struct_codec import api


# Version 1 is the same as version 0.
# Version 2 is the first flexible version.
# Version 3 adds ProducerId and ProducerEpoch, allowing producers to try to resume after an
# INVALID_PRODUCER_EPOCH error
# Version 4 adds the support for new error code PRODUCER_FENCED.
# Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
# Version 6 adds support for 2PC (KIP-939).
@dataclass(slots=True, kw_only=True)
class InitProducerIdRequest:
    transactional_id: str | None = nullable_string(default=None)
    transaction_timeout_ms: int = int32(default=60000)
    producer_id: int = int64(3, default=-1)
    producer_epoch: int = int16(3, default=-1)


# Starting in version 1, on quota violation, brokers send out responses before throttling.
# Version 2 is the first flexible version.
# Version 3 is the same as version 2.
# Version 4 adds the support for new error code PRODUCER_FENCED.
# Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
# Version 6 adds support for 2PC (KIP-939).
@dataclass(slots=True, kw_only=True)
class InitProducerIdResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16(default=-1)


API = api(22, InitProducerIdRequest, InitProducerIdResponse)
