"""What becomes of calls that are awaited, and cancelled, while the client's thread is busy."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from storage_engine.client.asynchronous import Completions, InThread, _awaited
from storage_engine.core.errors import HeadraceError


class Client:
    """Waits where it is told to."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def note(self, text: str) -> str:
        if text == "broken":
            raise HeadraceError(text)
        self.done.append(text)
        return text.upper()

    def wait(self, text: str) -> None:
        self.begun.set()
        assert self.may_end.wait(60)
        self.done.append(text)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        self.done.append(f"closed after {kind and kind.__name__}")


class AsyncClient(InThread[Client]):
    note = _awaited(Client.note)
    wait = _awaited(Client.wait)


def test_results_and_errors_come_back():
    async def work() -> None:
        async with AsyncClient(Client()) as client:
            assert await client.note("a") == "A"
            with pytest.raises(HeadraceError, match="broken"):
                await client.note("broken")

    asyncio.run(work())


def test_a_cancelled_call_ends_in_the_thread_and_one_not_begun_is_never_made():
    blocking = Client()

    async def work() -> None:
        async with AsyncClient(blocking) as client:
            begun = asyncio.create_task(client.wait("first"))
            await asyncio.to_thread(blocking.begun.wait, 60)
            queued = asyncio.create_task(client.note("never"))
            later = asyncio.create_task(client.note("later"))
            await asyncio.sleep(0)
            for task in (begun, queued):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert blocking.done == []
            blocking.may_end.set()
            assert await later == "LATER"

    asyncio.run(work())
    assert blocking.done == ["first", "later", "closed after None"]


def test_a_close_that_is_cancelled_closes_all_the_same():
    blocking = Client()

    async def work() -> None:
        client = AsyncClient(blocking)
        waiting = asyncio.create_task(client.wait("first"))
        await asyncio.to_thread(blocking.begun.wait, 60)
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(HeadraceError, match="the client is closed"):
            await client.note("too late")
        await client.close()
        blocking.may_end.set()
        await waiting

    asyncio.run(work())
    for thread in threading.enumerate():
        if thread.name.startswith("headrace-async"):
            thread.join(60)
    assert blocking.done == ["first", "closed after None"]


def test_the_client_hears_of_an_error_in_the_block():
    blocking = Client()

    async def work() -> None:
        async with AsyncClient(blocking):
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(work())
    assert blocking.done == ["closed after KeyError"]


def test_the_loop_is_woken_once_for_all_that_is_done_together(monkeypatch):
    wakes = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe

        def counted(callback, *arguments):
            wakes.append(callback)
            return wake(callback, *arguments)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        completions: Completions[int] = Completions()
        futures: list[Future[int]] = [Future() for _ in range(100)]
        waiting = [completions.awaitable(future) for future in futures]
        waiting[7].cancel()

        def finish() -> None:
            for number, future in enumerate(futures):
                if number == 5:
                    future.set_exception(HeadraceError("broken"))
                else:
                    future.set_result(number)

        thread = threading.Thread(target=finish)
        thread.start()
        thread.join()
        assert len(wakes) == 1
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert str(results[5]) == "broken"
        assert isinstance(results[7], asyncio.CancelledError)
        assert [r for n, r in enumerate(results) if n not in (5, 7)] == [
            n for n in range(100) if n not in (5, 7)
        ]
        late: Future[int] = Future()
        awaited = completions.awaitable(late)
        late.set_result(1)
        assert (await awaited, len(wakes)) == (1, 2)

    asyncio.run(work())


def test_what_is_done_after_the_loop_has_ended_disturbs_nobody(caplog):
    future: Future[int] = Future()

    async def work() -> None:
        Completions().awaitable(future)

    asyncio.run(work())
    future.set_result(1)
    assert caplog.records == []


def test_a_loop_that_ended_before_it_looked_keeps_no_later_one_from_its_futures():
    """asyncio.run() twice with one producer: what the first did not wait for is not waited for."""
    completions: Completions[int] = Completions()
    first, second = Future[int](), Future[int]()

    async def leave() -> None:
        completions.awaitable(first)
        # As the last thing in this loop.
        asyncio.get_running_loop().stop()
        first.set_result(1)

    async def wait() -> int:
        awaitable = completions.awaitable(second)
        threading.Thread(target=second.set_result, args=(2,)).start()
        return await asyncio.wait_for(awaitable, 5)

    ended = asyncio.new_event_loop()
    task = ended.create_task(leave())
    ended.run_forever()
    assert task.done()
    assert asyncio.run(wait()) == 2
    ended.close()
