"""The messages of our own APIs: round trips, their bytes, and bytes that are none."""

import struct
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.abort_members import AbortMembersRequest
from storage_engine.protocol.apis.batch_heartbeat import BatchHeartbeatRequest
from storage_engine.protocol.apis.commit_batch import CommitBatchRequest, CommitBatchResponse
from storage_engine.protocol.apis.describe_schemas import (
    DescribedSchema,
    DescribeSchemasRequest,
    DescribeSchemasResponse,
)
from storage_engine.protocol.apis.describe_sinks import (
    DescribeSinksRequest,
    DescribeSinksResponse,
    OpenMember,
    SinkQuery,
)
from storage_engine.protocol.apis.join_batch import JoinBatchRequest, JoinBatchResponse
from storage_engine.protocol.apis.micro_batch_fields import (
    BatchResponse,
    ClaimedBy,
    CommittedBy,
)
from storage_engine.protocol.apis.registry import OWN_RANGES, spec_for
from storage_engine.tests.protocol.apis.buffers import joined

JOIN, COMMIT, HEARTBEAT, ABORT, SCHEMAS, SINKS = sorted(OWN_RANGES)

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
some = st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number))
runs = st.none() | some
claims = st.none() | st.builds(ClaimedBy, ids, some, some)
whose = {"owner": names, "run": runs, "claim": claims}
committed = {"committed": st.builds(CommittedBy, names, runs, ids, ids)}
batch = {"sink": names, "query": names, "batch": ids}
outcomes = st.builds(BatchResponse, **codes)

timed = {"timeout_ms": st.integers(0, 2**31 - 1), "nonce": st.uuids()}
given_out = {"producer_id": ids, "producer_epoch": epochs, "origins": origins}
tasks = {"members": members, "drained": st.integers(0, 2**31 - 1), "origins": origins}
counts = {"rows": ids, "dropped": ids}
schemas = st.builds(
    DescribedSchema, topic=names, **codes, topic_id=st.uuids(), schema=st.none() | names
)

positive = st.integers(0, 2**31 - 1)
open_members = st.builds(
    OpenMember,
    producer_id=ids,
    epoch=epochs,
    batch=ids,
    timeout_ms=positive,
    idle_ms=ids,
    aborting=st.booleans(),
    partitions=origins.map(sorted),
)
sink_queries = st.builds(
    SinkQuery,
    sink=names,
    query=names,
    **committed,
    last=ids,
    markers=positive,
    origins=positive,
    members_total=positive,
    members=st.lists(open_members, max_size=2),
)

MESSAGES = {
    (JOIN, 0, "request"): st.builds(JoinBatchRequest, **batch, **timed, **whose),
    (JOIN, 0, "response"): st.builds(JoinBatchResponse, **codes, **given_out, **committed),
    (COMMIT, 0, "request"): st.builds(CommitBatchRequest, **batch, **tasks, **whose, **counts),
    (COMMIT, 0, "response"): st.builds(CommitBatchResponse, **codes, **committed),
    (HEARTBEAT, 0, "request"): st.builds(BatchHeartbeatRequest, **batch),
    (HEARTBEAT, 0, "response"): outcomes,
    (ABORT, 0, "request"): st.builds(
        AbortMembersRequest, sink=names, query=names, members=members, write=runs
    ),
    (ABORT, 0, "response"): outcomes,
    (SCHEMAS, 0, "request"): st.builds(DescribeSchemasRequest, topics=st.lists(names, max_size=3)),
    (SCHEMAS, 0, "response"): st.builds(
        DescribeSchemasResponse, topics=st.lists(schemas, max_size=3)
    ),
    (SINKS, 0, "request"): st.builds(
        DescribeSinksRequest,
        sinks=st.lists(names, max_size=3),
        producers=st.lists(ids, max_size=3),
        most=positive,
    ),
    (SINKS, 0, "response"): st.builds(
        DescribeSinksResponse,
        error_code=epochs,
        error_message=st.none() | names,
        more=st.booleans(),
        queries=st.lists(sink_queries, max_size=3),
    ),
}


def codecs(key: int, kind: str):
    spec = spec_for(key)
    if kind == "request":
        return spec.encode_request, spec.decode_request
    return spec.encode_response, spec.decode_response


@pytest.mark.parametrize(("key", "version", "kind"), MESSAGES)
def test_a_message_is_read_as_it_was_written_and_refused_when_it_is_cut_off(key, version, kind):
    encode, decode = codecs(key, kind)

    @settings(max_examples=25, deadline=None)
    @given(MESSAGES[key, version, kind])
    def check(message):
        data = joined(encode(version, message))
        assert decode(version, memoryview(data)) == message
        for end in range(len(data)):
            with pytest.raises(InvalidRequestError):
                decode(version, memoryview(data)[:end])
        tagged = data[:-1] + b"\x01\x63\x03abc"
        assert decode(version, memoryview(tagged)) == message, "a later version's field"
        if kind == "request":
            with pytest.raises(InvalidRequestError):
                decode(version, memoryview(data + b"\0"))

    check()


def test_the_bytes_of_a_join_and_of_a_commit():
    nonce = UUID(int=5)
    commit = CommitBatchRequest(
        sink="s",
        query="q1",
        batch=7,
        members=frozenset({(9, 0), (8, 0)}),
        drained=2,
        origins={TopicPartition("in", 1): 41, TopicPartition("in", 0): 40},
    )
    head = b"\x02s" + b"\x03q1" + struct.pack(">q", 7)
    assert joined(codecs(COMMIT, "request")[0](0, commit)) == (
        head
        + b"\x03" + struct.pack(">qhqh", 8, 0, 9, 0)
        + struct.pack(">i", 2)
        + b"\x02" + b"\x03in" + b"\x03" + struct.pack(">iqiq", 0, 40, 1, 41)
        + b"\x01" + bytes(16) + bytes(40) + b"\xff" * 16
        + b"\0"
    )  # fmt: skip

    join = JoinBatchRequest(
        sink="s",
        query="q1",
        batch=7,
        timeout_ms=1000,
        nonce=nonce,
        owner="o",
        run=UUID(int=6),
        claim=ClaimedBy(3, UUID(int=7), UUID(int=8)),
    )
    assert joined(codecs(JOIN, "request")[0](0, join)) == (
        head
        + struct.pack(">i", 1000) + nonce.bytes
        + b"\x02o" + UUID(int=6).bytes
        + struct.pack(">q", 3) + UUID(int=7).bytes + UUID(int=8).bytes
        + b"\0"
    )  # fmt: skip


def test_a_count_that_claims_too_much_is_refused():
    _, decode = codecs(COMMIT, "request")
    body = b"\x02s" + b"\x02q" + bytes(8) + b"\xff\xff\xff\xff\x0f" + bytes(100)
    with pytest.raises(InvalidRequestError, match="an array says it has"):
        decode(0, memoryview(body))
