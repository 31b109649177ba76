"""JoinBatch: a task asks to write in a micro-batch."""

import struct
from uuid import UUID

from hypothesis import strategies as st

from storage_engine.protocol.apis.join_batch import API, JoinBatchRequest, JoinBatchResponse
from storage_engine.protocol.apis.micro_batch_fields import ClaimedBy
from storage_engine.tests.protocol.apis.own.round_trips import (
    batch,
    check_round_trips,
    codes,
    committed,
    epochs,
    ids,
    origins,
    owner,
    positive,
    written,
)


def test_messages_come_back() -> None:
    timed = {"timeout_ms": positive, "nonce": st.uuids()}
    given_out = {"producer_id": ids, "producer_epoch": epochs, "origins": origins}
    check_round_trips(
        API,
        st.builds(JoinBatchRequest, **batch, **timed, **owner),
        st.builds(JoinBatchResponse, **codes, **given_out, **committed),
    )


def test_the_bytes_of_a_request() -> None:
    request = JoinBatchRequest(
        sink="s",
        query="q1",
        batch=7,
        timeout_ms=1000,
        nonce=UUID(int=5),
        owner="o",
        run=UUID(int=6),
        claim=ClaimedBy(3, UUID(int=7), UUID(int=8)),
    )
    assert written(API.encode_request, request) == (
        b"\x02s" + b"\x03q1" + struct.pack(">q", 7)
        + struct.pack(">i", 1000) + UUID(int=5).bytes
        + b"\x02o" + UUID(int=6).bytes
        + struct.pack(">q", 3) + UUID(int=7).bytes + UUID(int=8).bytes
        + b"\0"
    )  # fmt: skip
