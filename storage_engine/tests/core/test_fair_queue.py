"""Turns of those that share a queue: by use, at each level, without credit for the past."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core import fair_queue
from storage_engine.core.fair_queue import FIRST, FairQueue, Share, SharedRoom
from storage_engine.tests.sampling import examples


def taken(queue: FairQueue[str], number: int) -> list[str]:
    names = []
    for _ in range(number):
        share, item = next_of(queue)
        queue.done(share)
        names.append(item)
    return names


def next_of(queue: FairQueue[str]) -> tuple[Share, str]:
    found = queue.take()
    assert found is not None
    return found


def test_one_with_many_connections_gets_as_much_as_one_with_a_single_one():
    queue: FairQueue[str] = FairQueue()
    for number in range(20):
        queue.put(("crowd", "host", number), "crowd")
    for _ in range(5):
        queue.put(("other", "host", 99), "other")
    assert taken(queue, 10).count("other") == 5
    assert taken(queue, 15) == ["crowd"] * 15
    assert queue.take() is None


def test_connections_of_one_principal_take_turns_too():
    queue: FairQueue[str] = FairQueue()
    for _ in range(5):
        queue.put(("all", "host", 1), "first")
    for _ in range(5):
        queue.put(("all", "host", 2), "second")
    assert taken(queue, 4) == ["first", "second"] * 2


def test_turns_are_counted_by_size():
    queue: FairQueue[str] = FairQueue()
    for _ in range(10):
        queue.put(("large",), "large", 1000)
        queue.put(("small",), "small", 100)
    assert taken(queue, 11).count("small") == 10


def test_what_shows_only_at_the_end_counts_as_well():
    queue: FairQueue[str] = FairQueue()
    for _ in range(10):
        queue.put(("bombs",), "bomb", 1)
        queue.put(("small",), "small", 1)
    share, item = next_of(queue)
    assert item == "bomb"
    queue.done(share, 1_000_000)
    assert taken(queue, 10) == ["small"] * 10


def test_who_was_idle_has_no_credit_for_it():
    queue: FairQueue[str] = FairQueue()
    for _ in range(100):
        queue.put(("busy",), "busy", 10)
    assert taken(queue, 50) == ["busy"] * 50
    for _ in range(50):
        queue.put(("late",), "late", 10)
    assert 9 <= taken(queue, 20).count("late") <= 11


def test_who_has_used_much_is_remembered_when_it_comes_back():
    """One work at a time is no way around the turns."""
    queue: FairQueue[str] = FairQueue()
    queue.put(("bombs",), "bomb", 1000)
    assert taken(queue, 1) == ["bomb"]
    queue.put(("bombs",), "bomb", 1000)
    for _ in range(5):
        queue.put(("small",), "small", 1)
    assert taken(queue, 6) == ["small"] * 5 + ["bomb"]


def test_a_principal_has_so_many_at_most_under_way():
    queue: FairQueue[str] = FairQueue(each=2)
    for _ in range(4):
        queue.put(("a", 1), "a")
    under_way = [next_of(queue), next_of(queue)]
    assert queue.take() is None and len(queue) == 2
    queue.put(("b", 1), "b")
    assert queue.take() == (("b", 1), "b")
    assert queue.take() is None
    queue.done(under_way[0][0])
    assert queue.take() == (("a", 1), "a")
    assert queue.take() is None


def test_what_is_first_waits_for_nobody_however_much_it_has_used():
    queue: FairQueue[str] = FairQueue(each=8)
    queue.put((FIRST, 1), "order", 1_000_000)
    assert taken(queue, 1) == ["order"]
    queue.put(("client", 1), "client")
    queue.put((FIRST, 1), "order")
    queue.put((FIRST, 2), "order")
    assert taken(queue, 3) == ["order", "order", "client"]


def test_shares_without_work_are_forgotten(monkeypatch):
    monkeypatch.setattr(fair_queue, "KEPT_MAX", 10)
    queue: FairQueue[str] = FairQueue()
    queue._sweep_at = 10
    for number in range(1000):
        queue.put((number,), "x", 1000)
        assert taken(queue, 1) == ["x"]
    assert len(queue._root.below) <= 21


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 50), st.booleans()),
        max_size=60,
    )
)
def test_whatever_comes_everything_is_taken_once_and_each_connection_in_order(works):
    queue: FairQueue[int] = FairQueue(each=2)
    numbers = count()
    put, got, under_way = [], [], []
    for principal, connection, size, takes in works:
        number = next(numbers)
        put.append(((principal, connection), number))
        queue.put((principal, connection), number, size)
        if takes and (found := queue.take()) is not None:
            got.append(found)
            under_way.append(found[0])
        if len(under_way) > 3:
            queue.done(under_way.pop(0), size)
    while len(queue):
        for share in under_way:
            queue.done(share)
        under_way = []
        found = queue.take()
        assert found is not None
        got.append(found)
        under_way.append(found[0])
    assert sorted(got, key=lambda each: each[1]) == put
    for share in {share for share, _ in got}:
        of_share = [number for each, number in got if each == share]
        assert of_share == sorted(of_share)


def test_nobody_can_fill_the_room_for_the_others():
    room = SharedRoom(1200)
    crowd = 0
    while room.take(("crowd", crowd), 10):
        crowd += 1
    assert room.used == 600
    assert room.take(("other", 0), 100)
    for number in range(crowd):
        room.give_back(("crowd", number), 10)
    room.give_back(("other", 0), 100)
    assert room.used == 0 and not room._used_by


def test_a_connection_leaves_room_for_the_others_of_its_principal():
    room = SharedRoom(1200)
    while room.take(("all", 1), 10):
        pass
    assert not room.take(("all", 2), 10)
    room.give_back(("all", 1), 10)
    assert room.take(("all", 2), 10)


@pytest.mark.parametrize("size", [5, 5000])
def test_anything_finds_room_where_nothing_is(size):
    room = SharedRoom(100)
    assert room.take(("one",), size)
    room.give_back(("one",), size)
    assert room.take(("other",), size)


def test_nothing_may_be_taken_and_given_back():
    room = SharedRoom(100)
    assert room.take(("one",), 10) and room.take(("one",), 0)
    room.give_back(("one",), 10)
    room.give_back(("one",), 0)
    assert room.used == 0 and not room._used_by
