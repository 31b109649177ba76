"""The largest states that clients may leave in a broker (docs/measurements.md): each has a bound,
takes no more memory than is said there, and no step looks at more of it than it must. Lines of the
product's code that run are counted, since times say nothing on a busy machine; `headrace bench
requests --state` tells the times."""

import sys
from typing import Any

import pytest

from benchmarks.largest.groups import Subscriptions
from benchmarks.largest.states import LARGEST, Largest, built, costs_of_steps
from storage_engine.core.coordinator_log import PIECE
from storage_engine.core.groups.deadlines import DUE_MAX
from storage_engine.tests.sampling import ALL_FAULTS

pytestmark = pytest.mark.slow

SAMPLE = 5_000
"""By default a tenth of each, and no more than this, which is several pieces."""

GROUP_STEPS: dict[str, tuple[int, float]] = {
    "JoinGroup": (1_000, 0),
    "a generation begins": (1_000, 26),
    "answers of a turn": (2_800, 0),
    "SyncGroup of the leader": (1_000, 44),
    "the record is replicated": (50, 0),
    "a static member comes back": (4_000, 22),
    "restored": (120 * PIECE, 0),
    # A rebalance begins, with the longest timeout of all.
    "sessions end": (60 * DUE_MAX, 5),
}
ROWS: dict[str, tuple[object, int, dict[str, tuple[int, float]]]] = {
    "Members": ("GROUP_MAX_SIZE_REACHED", 1_900, GROUP_STEPS),
    "SilentMembers": (
        "GROUP_MAX_SIZE_REACHED",
        1_900,
        GROUP_STEPS
        | {
            "a rebalance begins": (1_000, 2),
            # The list of all that are late, and the end of some.
            "others do not join again": (60 * DUE_MAX, 5),
            "nobody syncs": (60 * DUE_MAX, 0),
        },
    ),
    "Protocols": (
        "INVALID_REQUEST",
        17_000,
        GROUP_STEPS
        | {
            "JoinGroup": (2_000, 0),
            "a static member comes back": (6_000, 22),
            # A thousand lists of one protocol each: theirs is not recorded but for the chosen.
            "restored": (120 * PIECE, 0),
        },
    ),
    "PromisedIds": ("GROUP_MAX_SIZE_REACHED", 420, {"ids expire": (25 * DUE_MAX, 0)}),
    "Subscriptions": ("not read", 30, GROUP_STEPS | {"topics are read": (2_000, 10)}),
    "GroupOffsets": (
        None,
        1_050,
        {"a topic is deleted": (14 * PIECE, 0), "offsets expire": (28 * PIECE, 0)},
    ),
    "Producers": (
        "NOT_ENOUGH_REPLICAS",
        190,
        {"snapshot": (100, 2), "read back": (200, 10), "producers expire": (20 * 10_000, 0)},
    ),
    "TransactionalIds": (None, 1_100, {"restored": (32 * PIECE, 0), "ids expire": (28 * PIECE, 0)}),
    "OpenTransactions": (
        None,
        1_150,
        {"restored": (32 * PIECE, 0), "transactions time out": (170 * PIECE, 0)},
    ),
    # Of a commit the batches of the query are looked at, of a restored query its members.
    "SinkMembers": (
        None,
        900,
        {
            "restored": (45 * PIECE, 0),
            "CommitMicroBatch": (1_000, 4),
            "members time out": (150 * PIECE, 0),
        },
    ),
    "Sessions": (
        "no session",
        460,
        {
            "request of a large session": (200, 0.15),
            "a large session begins": (2_000, 2.7),
            "answer of a large session": (200, 1.5),
        },
    ),
}
"""By state what is said to one more (None: time is the bound), the bytes of an entry at most, and
by step the lines that it may run: so many, and so many for each entry."""


@pytest.fixture(params=LARGEST, ids=[each.state.__name__ for each in LARGEST])
def row(request, monkeypatch) -> Largest:
    each: Largest = request.param
    if not ALL_FAULTS:
        each = each._replace(entries=min(SAMPLE, each.entries // 10))
    if each.bound is not None:
        monkeypatch.setattr(*each.bound, each.entries)
    return each


def lines_counted(row: Largest) -> tuple[dict[str, float], int]:
    """By step the lines of the product, and the entries that are left."""
    count = 0

    def trace(frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        if frame.f_globals["__name__"].startswith("benchmarks."):
            return None
        count += event == "line"
        return trace

    state = row.state(row.entries)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return costs_of_steps(state.steps(), lambda: count), state.left()
    finally:
        sys.settrace(before)


def test_one_more_is_refused_and_the_memory_is_bounded(row):
    state, taken = built(row, row.entries)
    refused_with, bytes_each, _ = ROWS[row.state.__name__]
    assert taken <= bytes_each * row.entries + 100_000
    assert state.refusal() == refused_with


def test_no_step_looks_at_more_than_it_must_and_what_is_unused_ends(row):
    lines, left = lines_counted(row)
    _, _, limits = ROWS[row.state.__name__]
    above = {
        step: spent
        for step, spent in lines.items()
        if spent > limits[step][0] + limits[step][1] * row.entries
    }
    assert above == {}
    assert left == 0 or row.state is Subscriptions, "time is the bound, too"


def test_each_row_of_the_benchmark_is_tested():
    assert [each.state.__name__ for each in LARGEST] == list(ROWS)
