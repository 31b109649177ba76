"""A request that goes on after a wait, and an answer that a thread encodes."""

from types import SimpleNamespace

import pytest

from simulation.world.clock import ProcessLoop, SimulatedLoop
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import LongWork
from storage_engine.protocol.apis import metadata
from storage_engine.tests.broker.support import QuietConnection


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop()


@pytest.fixture
def call(loop) -> ApiCall:
    process = ProcessLoop(loop)
    work = LongWork(process, process, process.work_ns)
    sent: list[object] = []
    exchange = SimpleNamespace(closed=False, sent=sent, respond=sent.append)
    return ApiCall(metadata.API, 1, 0, QuietConnection(), exchange, work=work)


def test_work_after_a_wait_is_not_begun_for_a_client_that_is_gone(call):
    done: list[int] = []

    def steps():
        for number in range(3):
            done.append(number)
            yield None

    call.exchange.closed = True
    call.run(steps())
    assert done == []
    call.exchange.closed = False
    call.run(steps())
    assert len(done) == 3


def test_while_a_long_answer_is_encoded_the_next_request_waits(call, loop):
    call.is_long = True
    call.respond(metadata.MetadataResponse(brokers=[], controller_id=1, topics=[]))
    assert (call.exchange.sent, call.connection.holds) == ([], 1)
    loop.run_for(100)
    assert len(call.exchange.sent) == 1
    assert (call.connection.holds, call.connection.failures) == (0, [])


def test_a_long_answer_that_can_not_be_encoded_ends_the_connection(call, loop):
    call.is_long = True
    call.respond("no answer of this request")
    loop.run_for(100)
    assert call.exchange.sent == []
    assert [type(each) for each in call.connection.failures] == [AttributeError]
    assert call.connection.holds == 0
