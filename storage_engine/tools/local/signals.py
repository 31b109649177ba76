"""Handles signals that end a process like Ctrl-C, so that the process stops what it has started."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Within the block SIGTERM and a closed terminal raise KeyboardInterrupt, as Ctrl-C does. Under
    nohup a closed terminal does not.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = _not_ignored(signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_ask(stop: Callable[[], None]) -> Iterator[None]:
    """Within the block Ctrl-C, SIGTERM and a closed terminal call `stop`, which says that what runs
    is to end in order; the second of them raises KeyboardInterrupt."""
    came: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)
        stop()

    numbers = _not_ignored(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_held() -> Iterator[None]:
    """Within the block nothing interrupts: one Ctrl-C more must not end what stops everything. What
    came meanwhile is raised after it.
    """
    if threading.current_thread() is not threading.main_thread():
        # Signals are not raised here.
        yield
        return
    came: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        came.append(number)

    numbers = _not_ignored(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, hold) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def _not_ignored(*numbers: signal.Signals) -> list[signal.Signals]:
    """Nohup ignores SIGHUP, and a shell SIGINT for what it starts behind `&`."""
    return [each for each in numbers if signal.getsignal(each) is not signal.SIG_IGN]
