"""Random fields of our own messages, and the round trip of a message."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.micro_batch_fields import ClaimedBy, CommittedBy
from storage_engine.protocol.apis.spec import AnyApi
from storage_engine.tests.protocol.apis.buffers import joined

names = st.text(max_size=6)
ids = st.integers(-(2**63), 2**63 - 1)
positive = st.integers(0, 2**31 - 1)
epochs = st.integers(-(2**15), 2**15 - 1)
members = st.frozensets(st.tuples(ids, epochs), max_size=4)
origins = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "ü"]), positive), ids, max_size=4
)
some = st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number))
runs = st.none() | some
batch = {"sink": names, "query": names, "batch": ids}
owner = {"owner": names, "run": runs, "claim": st.none() | st.builds(ClaimedBy, ids, some, some)}
codes = {"error_code": epochs, "error_message": st.none() | names}
committed = {"committed": st.builds(CommittedBy, names, runs, ids, ids)}


def written(encode: Callable[..., Any], message: Any) -> bytes:
    """A message as bytes, in the one version that our own APIs have."""
    return joined(encode(0, message))


def check_round_trips(
    api: AnyApi, requests: st.SearchStrategy[Any], responses: st.SearchStrategy[Any]
) -> None:
    """A message is read as it was written and refused when it is cut off. A field of a later
    version is skipped; bytes that are left over spoil a request."""

    @settings(max_examples=25, deadline=None)
    @given(requests, responses)
    def check(request: Any, response: Any) -> None:
        for encode, decode, message in (
            (api.encode_request, api.decode_request, request),
            (api.encode_response, api.decode_response, response),
        ):
            data = written(encode, message)
            assert decode(0, memoryview(data)) == message
            for end in range(len(data)):
                with pytest.raises(InvalidRequestError):
                    decode(0, memoryview(data)[:end])
            assert decode(0, memoryview(data[:-1] + b"\x01\x63\x03abc")) == message
        with pytest.raises(InvalidRequestError):
            api.decode_request(0, memoryview(written(api.encode_request, request) + b"\0"))

    check()
