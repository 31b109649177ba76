"""Futures that share the outcome of their batch do all that futures do."""

import asyncio
import threading
from concurrent.futures import FIRST_COMPLETED, as_completed, wait

import pytest

from storage_engine.client.changed import Changed
from storage_engine.client.producer.record_future import BatchOutcome, RecordFuture
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition

LONG_S = 60
TP = TopicPartition("t", 0)
ERROR = KafkaError("no", ErrorCode.NOT_LEADER_OR_FOLLOWER)


def batch(count: int = 3) -> tuple[BatchOutcome, list[RecordFuture]]:
    outcome = BatchOutcome(Changed())
    return outcome, [RecordFuture(TP, outcome, index) for index in range(count)]


def test_results_and_callbacks_come_in_order():
    outcome, futures = batch()
    heard: list[object] = []
    for future in futures:
        assert future.running()
        assert not future.cancel()
        future.add_done_callback(lambda done: heard.append(done.result().offset))
    outcome.settle(5, None)
    assert heard == [5, 6, 7]
    assert [future.result(0).offset for future in futures] == heard
    futures[0].add_done_callback(lambda done: heard.append(done.done()))
    assert heard[3:] == [True]


def test_an_error_is_that_of_all():
    outcome, futures = batch()
    outcome.settle(-1, ERROR)
    assert [future.exception(0) for future in futures] == [ERROR] * 3
    with pytest.raises(KafkaError, match="no"):
        futures[2].result(0)


def test_a_callback_that_fails_keeps_nothing_from_the_others(caplog):
    outcome, futures = batch()
    futures[0].add_done_callback(lambda _: 1 // 0)
    outcome.settle(0, None)
    assert futures[2].result(0).offset == 2
    assert "ZeroDivisionError" in caplog.text


def test_who_waits_is_woken_by_its_own_batch_only():
    (first, _), (second, waited) = batch(), batch()
    heard: list[int] = []
    waits = threading.Thread(target=lambda: heard.append(waited[1].result(LONG_S).offset))
    waits.start()
    first.settle(0, None)
    with pytest.raises(TimeoutError):
        waited[0].result(0.01)
    second.settle(10, None)
    waits.join(LONG_S)
    assert heard == [11]


@pytest.mark.parametrize("outcome", ["told", "error"])
def test_several_are_waited_for_together(outcome):
    (first, firsts), (second, seconds) = batch(), batch()
    every = [*seconds, *firsts]
    asked = threading.Event()
    done: list[int] = []

    def wait_for_first() -> None:
        asked.set()
        done.append(len(wait(every, LONG_S, FIRST_COMPLETED).done))

    waits = threading.Thread(target=wait_for_first)
    waits.start()
    assert asked.wait(LONG_S)
    first.settle(0, None if outcome == "told" else ERROR)
    waits.join(LONG_S)
    assert done[0] in (1, 2, 3)
    second.settle(0, None)
    assert set(as_completed(every, LONG_S)) == set(every)


def test_asyncio_waits_for_them():
    outcome, futures = batch()

    async def offsets() -> list[int]:
        waited = [asyncio.wrap_future(future) for future in futures]
        asyncio.get_running_loop().run_in_executor(None, outcome.settle, 0, None)
        return [each.offset for each in await asyncio.gather(*waited)]

    assert asyncio.run(asyncio.wait_for(offsets(), LONG_S)) == [0, 1, 2]


def test_who_asks_late_by_any_means_is_answered_at_once():
    outcome, futures = batch()
    outcome.settle(7, None)
    assert wait(futures, LONG_S).done == set(futures)
    assert not futures[0].cancel() and not futures[0].cancelled() and not futures[0].running()
    assert "finished" in repr(futures[1])
