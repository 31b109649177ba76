"""CommitBatch: a driver commits a micro-batch of many tasks."""

import struct

from hypothesis import strategies as st

from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.commit_batch import API, CommitBatchRequest, CommitBatchResponse
from storage_engine.tests.protocol.apis.own.round_trips import (
    batch,
    check_round_trips,
    codes,
    committed,
    ids,
    members,
    origins,
    owner,
    positive,
    written,
)


def test_messages_come_back() -> None:
    tasks = {"members": members, "drained": positive, "origins": origins}
    counts = {"rows": ids, "dropped": ids}
    check_round_trips(
        API,
        st.builds(CommitBatchRequest, **batch, **tasks, **owner, **counts),
        st.builds(CommitBatchResponse, **codes, **committed),
    )


def test_the_bytes_of_a_request_have_members_and_origins_in_their_order() -> None:
    request = CommitBatchRequest(
        sink="s",
        query="q1",
        batch=7,
        members=frozenset({(9, 0), (8, 0)}),
        drained=2,
        origins={TopicPartition("in", 1): 41, TopicPartition("in", 0): 40},
    )
    assert written(API.encode_request, request) == (
        b"\x02s" + b"\x03q1" + struct.pack(">q", 7)
        + b"\x03" + struct.pack(">qhqh", 8, 0, 9, 0)
        + struct.pack(">i", 2)
        + b"\x02" + b"\x03in" + b"\x03" + struct.pack(">iqiq", 0, 40, 1, 41)
        + b"\x01" + bytes(16) + bytes(40) + b"\xff" * 16
        + b"\0"
    )  # fmt: skip
