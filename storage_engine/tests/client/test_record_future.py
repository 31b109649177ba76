"""Futures that share the condition of their batch do all that futures do."""

import asyncio
import threading
from concurrent.futures import FIRST_COMPLETED, as_completed, wait

import pytest

from storage_engine.client.producer.record_future import RecordFuture, next_future, resolve
from storage_engine.client.producer.record_groups import RecordMetadata
from storage_engine.core.errors import ErrorCode, KafkaError

LONG_S = 60
ERROR = KafkaError("no", ErrorCode.NOT_LEADER_OR_FOLLOWER)


def batch(lock: threading.RLock, count: int = 3) -> list[RecordFuture]:
    futures: list[RecordFuture] = []
    for _ in range(count):
        futures.append(next_future(futures, lock))
    return futures


def told(offsets: range) -> list[RecordMetadata]:
    return [RecordMetadata("t", 0, offset) for offset in offsets]


def test_results_and_callbacks_come_in_order():
    futures = batch(threading.RLock())
    heard: list[object] = []
    for future in futures:
        assert future.running()
        assert not future.cancel()
        future.add_done_callback(lambda done: heard.append(done.result().offset))
    resolve(futures, told(range(5, 8)))
    assert heard == [5, 6, 7]
    assert [future.result(0).offset for future in futures] == heard
    futures[0].add_done_callback(lambda done: heard.append(done.done()))
    assert heard[3:] == [True]


def test_an_error_is_that_of_all():
    futures = batch(threading.RLock())
    resolve(futures, ERROR)
    assert [future.exception(0) for future in futures] == [ERROR] * 3
    with pytest.raises(KafkaError, match="no"):
        futures[2].result(0)


def test_a_callback_that_fails_keeps_nothing_from_the_others(caplog):
    futures = batch(threading.RLock())
    futures[0].add_done_callback(lambda _: 1 // 0)
    resolve(futures, told(range(3)))
    assert futures[2].result(0).offset == 2
    assert "ZeroDivisionError" in caplog.text


def test_who_waits_is_woken_by_its_own_batch_only():
    lock = threading.RLock()
    first, second = batch(lock), batch(lock)
    heard: list[int] = []
    waits = threading.Thread(target=lambda: heard.append(second[1].result(LONG_S).offset))
    waits.start()
    resolve(first, told(range(3)))
    with pytest.raises(TimeoutError):
        second[0].result(0.01)
    resolve(second, told(range(10, 13)))
    waits.join(LONG_S)
    assert heard == [11]


@pytest.mark.parametrize("outcome", ["told", "error"])
def test_several_are_waited_for_together(outcome):
    lock = threading.RLock()
    first, second = batch(lock), batch(lock)
    every = [*second, *first]
    asked = threading.Event()
    done: list[int] = []

    def wait_for_first() -> None:
        asked.set()
        done.append(len(wait(every, LONG_S, FIRST_COMPLETED).done))

    waits = threading.Thread(target=wait_for_first)
    waits.start()
    assert asked.wait(LONG_S)
    resolve(first, told(range(3)) if outcome == "told" else ERROR)
    waits.join(LONG_S)
    assert done[0] in (1, 2, 3)
    resolve(second, told(range(3)))
    assert set(as_completed(every, LONG_S)) == set(every)


def test_asyncio_waits_for_them():
    futures = batch(threading.RLock())

    async def offsets() -> list[int]:
        waited = [asyncio.wrap_future(future) for future in futures]
        asyncio.get_running_loop().run_in_executor(None, resolve, futures, told(range(3)))
        return [each.offset for each in await asyncio.gather(*waited)]

    assert asyncio.run(asyncio.wait_for(offsets(), LONG_S)) == [0, 1, 2]
