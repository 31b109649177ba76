"""AbortMembers: the driver of the exactly-once sink aborts task attempts, by producer id. One of
Headrace's own APIs. Source: R-SPARK2.
"""

from dataclasses import dataclass
from uuid import UUID

from storage_engine.protocol.apis.fields import name
from storage_engine.protocol.apis.micro_batch_fields import (
    BatchResponse,
    Members,
    members,
    uuid_or_none,
)
from storage_engine.protocol.apis.struct_codec import api


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortMembersRequest:
    """Names members and never a batch: the driver of an old run would abort the members of the new
    run."""

    sink: str = name()
    query: str = name()
    members: Members = members()
    write: UUID | None = uuid_or_none()
    """The named batch write that is given up with them, whether it was committed or not."""


API = api(20_003, AbortMembersRequest, BatchResponse)
