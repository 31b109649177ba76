"""BatchHeartbeat: reports that an attempt of a micro-batch is running, so that no attempt of the
batch times out. One of Headrace's own APIs. Source: R-SPARK2.
"""

from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int64, name
from storage_engine.protocol.apis.micro_batch_fields import BatchResponse
from storage_engine.protocol.apis.struct_codec import api


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeartbeatRequest:
    """The fields are those of JoinBatch."""

    sink: str = name()
    query: str = name()
    batch: int = int64()


API = api(20_002, BatchHeartbeatRequest, BatchResponse)
