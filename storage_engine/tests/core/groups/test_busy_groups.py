"""Members that leave a group while it is converted wait, and keep their order."""

from collections import deque
from collections.abc import Iterator

from storage_engine.core.coordinator_log import PIECE, Moment, StateLog
from storage_engine.core.groups.busy_groups import BusyGroups
from storage_engine.core.groups.coordinator import refusal
from storage_engine.core.groups.events import GroupLog, Leave


class Bench:
    def __init__(self) -> None:
        self.work: deque[Iterator[None]] = deque()
        self.stepped: list[int] = []
        log: GroupLog = StateLog(refusal)
        self.busy = BusyGroups(log, self.work.append, self.step)
        self.begins_at: int | None = None

    def step(self, event) -> None:
        self.stepped.append(event.request)
        if event.request == self.begins_at:
            self.busy.convert("g", self.conversion(-2))
            self.busy.put_first(request(1_000))

    def conversion(self, name: int) -> Iterator[None]:
        yield
        self.stepped.append(name)
        yield

    def go_on(self) -> int:
        """Do a piece; return how many requests were stepped."""
        before = len(self.stepped)
        if next(self.work[0], False) is False:
            self.work.popleft()
        return len(self.stepped) - before


def request(number: int) -> Leave:
    return Leave(request=number, group_id="g", members=(), at=Moment(0, 0))


def test_requests_wait_for_the_conversion_and_are_stepped_in_their_order():
    bench = Bench()
    assert not bench.busy.waiting
    bench.busy.convert("g", bench.conversion(-1))
    assert "g" in bench.busy and "h" not in bench.busy
    for number in range(3):
        bench.busy.receive(request(number))
    bench.busy.put_first(request(9))
    while bench.work:
        bench.go_on()
    assert bench.stepped == [-1, 9, 0, 1, 2] and not bench.busy.waiting


def test_many_requests_are_stepped_in_pieces_and_later_ones_after_them():
    bench = Bench()
    bench.busy.convert("g", bench.conversion(-1))
    for number in range(PIECE + 1):
        bench.busy.receive(request(number))
    most = 0
    while bench.work:
        most = max(most, bench.go_on())
        if len(bench.stepped) == PIECE + 1:
            assert "g" in bench.busy
            bench.busy.receive(request(7_000))
    assert most <= PIECE + 1
    assert bench.stepped[1:] == [*range(PIECE + 1), 7_000]


def test_a_conversion_that_a_waiting_request_begins_comes_before_the_next_one():
    bench = Bench()
    bench.begins_at = 1
    bench.busy.convert("g", bench.conversion(-1))
    for number in range(3):
        bench.busy.receive(request(number))
    while bench.work:
        bench.go_on()
    assert bench.stepped == [-1, 0, 1, -2, 1_000, 2]
