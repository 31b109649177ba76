"""What ends a command, and what does not."""

import os
import signal
from collections.abc import Iterator

import pytest

from storage_engine.tools.local.signals import signals_ask, signals_held, signals_interrupt

ENDING = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in (*ENDING, signal.SIGINT)}
    for each in ENDING:
        signal.signal(each, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", ENDING)
def test_sigterm_and_a_closed_terminal_interrupt(number):
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        send(number)


def test_under_nohup_a_closed_terminal_does_not_interrupt():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals_interrupt():
        send(signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGTERM)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_what_comes_while_signals_are_held_interrupts_afterwards_unless_it_was_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    done = False
    with pytest.raises(KeyboardInterrupt), signals_held():
        send(signal.SIGINT)
        done = True
    assert done
    with signals_held():
        send(signal.SIGHUP)


@pytest.mark.parametrize("number", [*ENDING, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_interrupts(number):
    asked: list[str] = []
    with pytest.raises(KeyboardInterrupt), signals_ask(lambda: asked.append("stop")):
        send(number)
        assert asked == ["stop"]
        send(number)
    assert asked == ["stop"]
