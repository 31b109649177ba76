"""Threads that clients share: how many work at a time, for whom, and what frees them."""

import pytest

from storage_engine.broker.shared_threads import SharedThreads

A, B = ("User:a", "host", 1), ("User:b", "host", 2)


class Background:
    """Keeps the work until the test ends it."""

    def __init__(self) -> None:
        self.begun: list[tuple] = []

    def submit(self, work, on_done, on_error) -> None:
        self.begun.append((work, on_done, on_error))

    def end(self, error: Exception | None = None) -> None:
        work, on_done, on_error = self.begun.pop(0)
        if error is None:
            on_done(work())
        else:
            on_error(error)


@pytest.fixture
def background() -> Background:
    return Background()


@pytest.fixture
def done() -> list[object]:
    return []


def submit(threads, share, done: list, name: str, *, size: int = 1) -> None:
    threads.submit(share, lambda: name, done.append, done.append, size=size)


def test_a_principal_leaves_threads_to_others(background, done):
    threads = SharedThreads(background, at_once=3, each=2)
    for number in range(4):
        submit(threads, A, done, f"a{number}")
    assert len(background.begun) == 2
    for number in range(2):
        submit(threads, B, done, f"b{number}")
    assert len(background.begun) == 3
    while background.begun:
        background.end()
    assert sorted(done) == ["a0", "a1", "a2", "a3", "b0", "b1"]


def test_work_that_fails_frees_its_thread(background, done):
    threads = SharedThreads(background, at_once=1)
    submit(threads, A, done, "first")
    submit(threads, A, done, "second")
    failure = OSError("no such thing")
    background.end(failure)
    background.end()
    assert done == [failure, "second"]


def test_what_is_known_at_the_end_of_the_work_counts_for_the_next_turn(background, done):
    threads = SharedThreads(background, at_once=1)
    threads.submit(A, lambda: "small", done.append, done.append, more=lambda _result: 1_000)
    for number in range(2):
        submit(threads, A, done, f"a{number}", size=100)
        submit(threads, B, done, f"b{number}", size=100)
    while background.begun:
        background.end()
    assert done == ["small", "b0", "b1", "a0", "a1"]


def test_much_work_that_ends_at_once_is_no_deep_stack(background, done):
    threads = SharedThreads(background, at_once=1)
    submit(threads, A, done, "first")
    ended: list[None] = []

    def begin() -> None:
        ended.append(None)
        threads.ended(A)

    for _ in range(10_000):
        threads.when_its_turn(A, begin)
    assert not ended
    background.end()
    assert len(ended) == 10_000
