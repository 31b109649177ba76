"""Fields that the requests for micro-batches share, where a round trip tells nothing."""

from uuid import UUID

import pytest

from storage_engine.core.errors import InvalidRequestError
from storage_engine.protocol.apis.commit_batch import API, CommitBatchRequest
from storage_engine.protocol.apis.micro_batch_fields import ClaimedBy
from storage_engine.tests.protocol.apis.own.round_trips import written


@pytest.mark.parametrize(("attempt", "write"), [(0, 1), (1, 0)])
def test_a_claim_without_an_attempt_or_a_write_is_none(attempt: int, write: int) -> None:
    claim = ClaimedBy(3, UUID(int=attempt), UUID(int=write))
    data = written(API.encode_request, CommitBatchRequest(claim=claim))
    assert API.decode_request(0, memoryview(data)).claim is None


def test_a_count_that_claims_too_much_is_refused() -> None:
    body = b"\x02s" + b"\x02q" + bytes(8) + b"\xff\xff\xff\xff\x0f" + bytes(100)
    with pytest.raises(InvalidRequestError, match="an array says it has"):
        API.decode_request(0, memoryview(body))
