"""Waiting for a change under a lock, also where a signal handler comes in between."""

import threading
import time

import pytest

from storage_engine.client.changed import Changed
from storage_engine.net.deadline import Deadline

LONG_MS = 60_000


@pytest.fixture
def changed():
    return Changed()


def test_a_change_between_the_check_and_the_wait_is_not_forgotten(changed):
    """As one that a signal handler makes, in the same thread."""
    with changed.lock, changed.waiting() as waiting:
        changed.notify_all()
        changed.notify_all()
        began_s = time.monotonic()
        assert waiting.wait(Deadline.after(LONG_MS))
        assert time.monotonic() - began_s < LONG_MS / 2000
        assert waiting.wait(Deadline.after(10)), "it returns also when its time is over"
        assert not waiting.wait(Deadline.after(0))


def test_a_wait_lets_go_of_a_lock_that_is_held_twice_and_wakes_all(changed):
    woken = []
    ready = threading.Semaphore(0)

    def wait(name):
        with changed.lock, changed.lock, changed.waiting() as waiting:
            ready.release()
            waiting.wait(None)
            woken.append(name)

    threads = [threading.Thread(target=wait, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert ready.acquire(timeout=LONG_MS / 1000)
    with changed.lock:
        assert woken == []
        changed.notify_all()
    for thread in threads:
        thread.join(LONG_MS / 1000)
    assert sorted(woken) == [0, 1, 2]
