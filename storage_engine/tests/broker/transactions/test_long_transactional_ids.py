"""A transactional id that no record can hold ends no coordinator, which would start anew at each
request of it. The flexible versions of requests can carry one; Kafka's own clients send none."""

from dataclasses import replace
from typing import Any

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis import wire
from storage_engine.protocol.messages import init_producer_id
from storage_engine.tests.broker.transactions.test_transactions import (
    A,
    cluster,
    producer,
    settle,
    state_of,
)

__all__ = ["cluster"]

LONGEST = "\u00e4" * (32_767 // 2) + "p"
TOO_LONG = LONGEST + "p"


def boundless(spec: Any) -> Any:
    """The API of a client that keeps to no limit of strings."""

    def encode_request(version: int, request: Any) -> list[bytes]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire, "MAX_STRING_BYTES", 1 << 20)
            return [b"".join(bytes(each) for each in spec.encode_request(version, request))]

    return replace(spec, encode_request=encode_request)


def init(cluster, name: str) -> ErrorCode:
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=60_000
    )
    leader = cluster.state(state_of(name)).leader
    answers = cluster.ask(leader, boundless(init_producer_id.API), 4, request)
    return ErrorCode.of(cluster.answer(answers).error_code)


def test_a_transactional_id_that_no_record_can_hold_ends_no_coordinator(cluster):
    other = producer(cluster)
    runners = cluster[cluster.state(state_of(TOO_LONG)).leader].parts.coordinators.transactions
    before = dict(runners._runners)
    assert init(cluster, TOO_LONG) is ErrorCode.INVALID_REQUEST
    assert runners._runners == before
    assert init(cluster, LONGEST) is ErrorCode.NONE
    other.add(A)
    other.write(A, b"1")
    other.end(commits=True)
    settle(cluster, A)
