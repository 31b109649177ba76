"""BatchHeartbeat: a task keeps its transaction open."""

from hypothesis import strategies as st

from storage_engine.protocol.apis.batch_heartbeat import API, BatchHeartbeatRequest
from storage_engine.protocol.apis.micro_batch_fields import BatchResponse
from storage_engine.tests.protocol.apis.own.round_trips import (
    batch,
    check_round_trips,
    codes,
)


def test_messages_come_back() -> None:
    check_round_trips(
        API, st.builds(BatchHeartbeatRequest, **batch), st.builds(BatchResponse, **codes)
    )
