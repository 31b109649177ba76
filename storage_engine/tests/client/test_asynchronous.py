"""What becomes of calls that are awaited, and cancelled, while the client's thread is busy."""

import asyncio
import threading

import pytest

from storage_engine.client.asynchronous import InThread, _awaited
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
