"""The clock of leases runs on while the machine is suspended (R-REP11)."""

import time
from collections.abc import Callable

import pytest

from storage_engine.client.loop import ClientLoop
from storage_engine.client.zookeeper_consumer.ledger import StreamLedger
from storage_engine.core.ids import TopicPartition
from storage_engine.net.event_loop_ports import SystemClock
from storage_engine.zookeeper.session import ZooKeeperSession

SUSPENDED_MS = 60_000
SESSION_TIMEOUT_MS = 6_000


class Machine:
    """One whose clocks are those of this machine, as if it had been suspended meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept_ns = 0
        real = time.clock_gettime_ns

        def clock_gettime_ns(clock: int) -> int:
            slept = self.slept_ns if clock == time.CLOCK_BOOTTIME else 0
            return real(clock) + slept

        monkeypatch.setattr(time, "clock_gettime_ns", clock_gettime_ns)

    def suspend(self, ms: int) -> None:
        self.slept_ns += ms * 1_000_000


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def elapsed(clock: Callable[[], int], work: Callable[[], None]) -> int:
    before = clock()
    work()
    return clock() - before


@pytest.mark.parametrize("clock", [SystemClock(), ClientLoop("of a test")])
def test_a_clock_that_leases_are_measured_by_counts_the_time_of_a_suspension(clock, machine):
    passed = elapsed(clock.monotonic_ms, lambda: machine.suspend(SUSPENDED_MS))
    assert passed >= SUSPENDED_MS
    assert elapsed(clock.monotonic_ms, lambda: None) < SUSPENDED_MS


def test_a_broker_has_no_lease_when_its_machine_wakes_after_the_session_timeout(machine):
    """It would lead on beside the one that was elected while it slept."""
    clock = SystemClock()
    session = ZooKeeperSession("127.0.0.1:1", SESSION_TIMEOUT_MS, lambda work: work(), clock=clock)
    session._on_answer(clock.monotonic_ms())
    assert clock.monotonic_ms() < session.lease_end_monotonic_ms
    machine.suspend(SUSPENDED_MS)
    assert clock.monotonic_ms() >= session.lease_end_monotonic_ms


def test_a_stream_hands_out_nothing_when_its_machine_wakes_after_the_session_timeout(machine):
    class Lease:
        lease_end_monotonic_ms = SystemClock().monotonic_ms() + SESSION_TIMEOUT_MS

    tp = TopicPartition("t", 0)
    ledger = StreamLedger(Lease())
    ledger.give({tp: 0})
    claims = ledger.begin()
    assert claims is not None
    assert ledger.hand_out(claims[tp], 1)
    machine.suspend(SUSPENDED_MS)
    assert not ledger.hand_out(claims[tp], 2)
