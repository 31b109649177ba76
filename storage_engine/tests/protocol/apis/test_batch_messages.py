"""The messages of the exactly-once sink: round trips, their bytes, and bytes that are none."""

import struct
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.abort_members import AbortMembersRequest
from storage_engine.protocol.apis.batch_fields import BatchResponse
from storage_engine.protocol.apis.batch_heartbeat import BatchHeartbeatRequest
from storage_engine.protocol.apis.commit_batch import CommitBatchRequest
from storage_engine.protocol.apis.join_batch import JoinBatchRequest, JoinBatchResponse
from storage_engine.protocol.apis.registry import OWN_RANGES, spec_for
from storage_engine.tests.protocol.apis.buffers import joined

JOIN, COMMIT, HEARTBEAT, ABORT = sorted(OWN_RANGES)

names = st.text(max_size=6)
ids = st.integers(-(2**63), 2**63 - 1)
epochs = st.integers(-(2**15), 2**15 - 1)
members = st.frozensets(st.tuples(ids, epochs), max_size=4)
origins = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "ü"]), st.integers(0, 2**31 - 1)),
    ids,
    max_size=4,
)
codes = {"error_code": epochs, "error_message": st.none() | names}
batch = {"sink": names, "query": names, "batch": ids}
outcomes = st.builds(BatchResponse, **codes)

MESSAGES = {
    (JOIN, "request"): st.builds(
        JoinBatchRequest, **batch, timeout_ms=st.integers(0, 2**31 - 1), nonce=st.uuids()
    ),
    (JOIN, "response"): st.builds(
        JoinBatchResponse, **codes, producer_id=ids, producer_epoch=epochs, origins=origins
    ),
    (COMMIT, "request"): st.builds(
        CommitBatchRequest,
        **batch,
        members=members,
        drained=st.integers(0, 2**31 - 1),
        origins=origins,
    ),
    (COMMIT, "response"): outcomes,
    (HEARTBEAT, "request"): st.builds(BatchHeartbeatRequest, **batch),
    (HEARTBEAT, "response"): outcomes,
    (ABORT, "request"): st.builds(AbortMembersRequest, sink=names, query=names, members=members),
    (ABORT, "response"): outcomes,
}


def codecs(key: int, kind: str):
    spec = spec_for(key)
    if kind == "request":
        return spec.encode_request, spec.decode_request
    return spec.encode_response, spec.decode_response


@pytest.mark.parametrize(("key", "kind"), MESSAGES)
def test_a_message_is_read_as_it_was_written_and_refused_when_it_is_cut_off(key, kind):
    encode, decode = codecs(key, kind)

    @settings(max_examples=25, deadline=None)
    @given(MESSAGES[key, kind])
    def check(message):
        data = joined(encode(0, message))
        assert decode(0, memoryview(data)) == message
        for end in range(len(data)):
            with pytest.raises(InvalidRequestError):
                decode(0, memoryview(data)[:end])
        tagged = data[:-1] + b"\x01\x63\x03abc"
        assert decode(0, memoryview(tagged)) == message, "a later version's field"
        if kind == "request":
            with pytest.raises(InvalidRequestError):
                decode(0, memoryview(data + b"\0"))

    check()


def test_the_bytes_of_a_join_and_of_a_commit():
    nonce = UUID(int=5)
    join = JoinBatchRequest(sink="s", query="q1", batch=7, timeout_ms=1000, nonce=nonce)
    commit = CommitBatchRequest(
        sink="s",
        query="q1",
        batch=7,
        members=frozenset({(9, 0), (8, 0)}),
        drained=2,
        origins={TopicPartition("in", 1): 41, TopicPartition("in", 0): 40},
    )
    head = b"\x02s" + b"\x03q1" + struct.pack(">q", 7)
    assert joined(codecs(JOIN, "request")[0](0, join)) == (
        head + struct.pack(">i", 1000) + nonce.bytes + b"\0"
    )
    assert joined(codecs(COMMIT, "request")[0](0, commit)) == (
        head
        + b"\x03" + struct.pack(">qhqh", 8, 0, 9, 0)
        + struct.pack(">i", 2)
        + b"\x02" + b"\x03in" + b"\x03" + struct.pack(">iqiq", 0, 40, 1, 41)
        + b"\0"
    )  # fmt: skip


def test_a_count_that_claims_too_much_is_refused():
    _, decode = codecs(COMMIT, "request")
    body = b"\x02s" + b"\x02q" + bytes(8) + b"\xff\xff\xff\xff\x0f" + bytes(100)
    with pytest.raises(InvalidRequestError, match="an array says it has"):
        decode(0, memoryview(body))
