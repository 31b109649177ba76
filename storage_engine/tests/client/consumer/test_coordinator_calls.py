"""Calls to a group's coordinator are under way together, and each ends once."""

import pytest

from storage_engine.client.consumer import coordinator_calls
from storage_engine.client.consumer.coordinator_calls import CoordinatorCalls, code_of
from storage_engine.client.groups.group_requests import GroupRequest
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, HeadraceError, KafkaError
from storage_engine.net.blocking import wait_readable
from storage_engine.protocol.messages.heartbeat import API, HeartbeatRequest, HeartbeatResponse
from storage_engine.tests.client.fake_cluster import Fault
from storage_engine.tests.client.support.coordinators import found_at

LONG_MS = 30_000
TURNS = 200


@pytest.fixture
def calls(fake, cluster, monkeypatch):
    """Of brokers of which the second coordinates, and does not answer the first heartbeat."""

    def answer(_broker_id, api, _message):
        return found_at(fake, 2) if api == "FindCoordinator" else HeartbeatResponse(error_code=0)

    fake.admin = answer
    fake.fault = lambda asked: (
        Fault.SILENCE if (asked.api, asked.number) == ("Heartbeat", 1) else None
    )
    monkeypatch.setattr(coordinator_calls, "LOOKUP_MS", LONG_MS)
    made = CoordinatorCalls(cluster, "g")
    yield made
    made.close()


def heartbeat():
    return GroupRequest(spec=API, message=HeartbeatRequest(group_id="g"))


def received(calls, done):
    for _ in range(TURNS):
        if done():
            return
        wait_readable(calls.sockets(), 100)
        calls.receive()
    raise AssertionError("no answer comes")


def test_a_call_that_waits_holds_up_no_other(fake, calls):
    ended: list[object] = []
    calls.send(heartbeat(), LONG_MS, lambda *_: ended.append("waits"))
    calls.send(heartbeat(), LONG_MS, lambda answer, error: ended.append((answer.error_code, error)))
    received(calls, lambda: ended)
    assert ended == [(0, None)]
    assert len(calls.sockets()) == 1
    assert {each.broker_id for each in fake.asked if each.api == "Heartbeat"} == {2}
    assert fake.count("FindCoordinator") == 1


def test_a_call_without_an_answer_ends_with_an_error_when_its_time_is_over(calls):
    errors = []
    calls.send(heartbeat(), 1_000, lambda _answer, error: errors.append(error))
    received(calls, lambda: errors)
    assert [type(error) for error in errors] == [DeadlineExceededError]
    assert calls.sockets() == []


def test_a_call_that_is_dropped_never_ends(calls):
    ended = []
    call = calls.send(heartbeat(), LONG_MS, lambda *_: ended.append(1))
    calls.drop(call)
    calls.drop(call)
    calls.receive()
    assert (ended, calls.sockets()) == ([], [])
    with pytest.raises(KafkaError, match="closed"):
        call.connection.receive_nowait()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (DeadlineExceededError("late"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (HeadraceError("other"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (KafkaError("away", ErrorCode.NOT_COORDINATOR), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (KafkaError("no", ErrorCode.BROKER_NOT_AVAILABLE), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (
            KafkaError("no", ErrorCode.GROUP_AUTHORIZATION_FAILED),
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_only_a_final_error_is_told_to_the_member_as_it_is(error, code):
    assert code_of(error) is code
