"""Every request is counted; only some are timed, and count for the others."""

from types import SimpleNamespace
from typing import Any

import pytest

from storage_engine.broker.handlers.api_call import ApiCall, HandlerTable
from storage_engine.broker.metrics.request_figures import TIMED_PER_S, RequestCounts
from storage_engine.core.metrics import RequestFigures
from storage_engine.protocol.apis.fetch import API as FETCH


def _answered(call: Any, _request: object) -> None:
    call.answer()


class _Call:
    """As much of an `ApiCall` as timing takes."""

    time = ApiCall.time

    def __init__(self, version: int = 9) -> None:
        self.version = version
        self.figures: RequestFigures | None = None
        self.begun_ns = self.weight = 0

    def answer(self) -> None:
        if self.figures is not None:
            self.figures.answered(self.begun_ns, self.weight)


def _counts() -> RequestCounts:
    clock = iter(range(0, 10**9, 1_000))
    return RequestCounts(lambda: next(clock))


def test_of_many_fetches_only_some_are_timed_and_count_for_all():
    counts = _counts()
    table = HandlerTable()
    table.add(FETCH, _answered)
    counts.count_all(table)
    handler, figures = table.get(FETCH.key).handler, counts.of("FetchConsumer")
    request = SimpleNamespace(replica_id=-1)

    def fetch(number: int) -> None:
        for _ in range(number):
            handler(_Call(), request)

    fetch(10)
    assert figures.times.count == 10
    fetch(8 * TIMED_PER_S)
    counts.weigh()
    timed = figures.times.count
    fetch(4_096)
    assert figures.count == 10 + 8 * TIMED_PER_S + 4_096
    assert figures.times.count == timed + 4_096
    assert figures.weight == 16
    counts.weigh()
    counts.weigh()
    fetch(8)
    assert figures.weight == 1


def test_a_request_counts_for_as_many_as_when_it_was_taken_up():
    counts = _counts()
    figures = counts.of("FetchConsumer")
    call = _Call()
    call.time(figures)
    figures.counts[9] += 8 * TIMED_PER_S
    counts.weigh()
    call.answer()
    assert figures.times.count == 1


@pytest.mark.parametrize("rate", [1, 249, 250, 999, 40_000])
def test_a_kind_of_request_is_timed_some_hundreds_of_times_a_second_at_most(rate):
    counts = _counts()
    figures = counts.of("Produce")
    figures.counts[9] += rate
    counts.weigh()
    assert min(rate, TIMED_PER_S // 2) <= rate / figures.weight <= TIMED_PER_S
