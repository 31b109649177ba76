"""A signal handler may use a producer wherever it has interrupted a call: nothing hangs, is lost or
has another's offset."""

import functools
import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest

from storage_engine.client import Producer, ProducerClosedError
from storage_engine.client.producer.record_future import RecordFuture
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.client.support.interruptions import Interruption
from storage_engine.tests.sampling import ALL_FAULTS

TIME_MS = 30_000
STEP = 1 if ALL_FAULTS else 3
"""Of the places, every so many are tried."""


@pytest.fixture
def made(fake):
    fake.add_topic("t", [1])
    producers = []

    def make():
        producers.append(Producer({"bootstrap.servers": fake.bootstrap_servers, "linger.ms": 20}))
        producers[-1].send("t", b"first").result(TIME_MS / 1000)
        return producers[-1]

    yield make
    for producer in producers:
        producer.close(0)


class Sent:
    """The futures of what was sent, by value."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.futures: dict[bytes, RecordFuture] = {}
        self._numbers = itertools.count()

    def send(self, what: str) -> None:
        value = b"%s %d" % (what.encode(), next(self._numbers))
        self.futures[value] = self.producer.send("t", value)

    @property
    def newest(self) -> RecordFuture:
        return next(reversed(self.futures.values()))

    def check(self, fake) -> None:
        """Each is in the log once, where its future says."""
        self.producer.flush(TIME_MS)
        there: dict[bytes, int] = {}
        for batch in fake.partition("t", 0).batches:
            decoded = decode_batches(batch)
            for offset, value in zip(
                decoded.offsets.to_pylist(), decoded.values.to_pylist(), strict=True
            ):
                assert there.setdefault(value, offset) == offset or value == b"row"
        assert {value: future.result(0).offset for value, future in self.futures.items()} == {
            value: there[value] for value in self.futures
        }


def flushes(sent: Sent) -> None:
    sent.producer.flush(TIME_MS)
    assert all(future.done() for future in sent.futures.values())


def sends(sent: Sent) -> None:
    sent.send("handler")


def sends_and_flushes(sent: Sent) -> None:
    sent.send("handler")
    flushes(sent)


WORK: dict[str, Callable[[Sent], object]] = {
    "send": lambda sent: sent.send("outer"),
    "send_table": lambda sent: sent.producer.send_table("t", pa.table({"value": [b"row"]})),
    "flush": lambda sent: sent.producer.flush(TIME_MS),
    "callback": lambda sent: sent.newest.add_done_callback(lambda _: None),
    "result": lambda sent: sent.newest.exception(TIME_MS / 1000),
}


@pytest.mark.parametrize("handler", [flushes, sends, sends_and_flushes])
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_a_handler_may_send_and_flush_at_each_place_of_a_call(fake, made, work, handler):
    sent = Sent(made())
    for place in itertools.count(0, STEP):
        sent.send("before")
        with Interruption(place, lambda: handler(sent)) as interruption:
            work(sent)
        if not interruption.came:
            break
    assert place
    sent.check(fake)


@pytest.mark.parametrize("work", [WORK["send"], WORK["flush"]], ids=["send", "flush"])
def test_a_handler_may_close_at_each_place_of_a_call(made, work):
    for place in itertools.count(0, 3 * STEP):
        sent = Sent(made())
        sent.send("before")
        try:
            close = functools.partial(sent.producer.close, TIME_MS)
            with Interruption(place, close) as interruption:
                work(sent)
        except ProducerClosedError:
            pass
        sent.producer.close(TIME_MS)
        # Only what had not been sent when the handler came may fail.
        failed = [value for value, future in sent.futures.items() if future.exception(0)]
        assert failed in ([], [b"outer 1"])
        if not interruption.came:
            break
