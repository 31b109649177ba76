"""Flows: when they go on, when they do not, and how many run together."""

from collections.abc import Callable
from typing import Any

import pytest

from storage_engine.core.ports import ZkReply, ZkStatus
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows

MANY = 20_000


class Asked:
    """Waits that are over when the test says so."""

    def __init__(self) -> None:
        self.open: list[Callable[[Any], None]] = []

    def wait(self) -> Flow[Any]:
        return (yield self.open.append)


def added(asked: Asked, count: int) -> Flow[int]:
    total = 0
    for _ in range(count):
        total += yield from asked.wait()
    return total


def test_a_flow_goes_on_with_the_outcome_of_each_wait():
    flows, asked = Flows(), Asked()
    results: list[int] = []
    flows.start(added(asked, 2), results.append)
    asked.open.pop()(1)
    assert results == []
    asked.open.pop()(2)
    assert results == [3]


def test_a_flow_of_a_closed_owner_does_not_go_on():
    flows, asked = Flows(), Asked()
    results: list[int] = []
    flows.start(added(asked, 1), results.append)
    flows.close()
    asked.open.pop()(1)
    flows.start(added(asked, 0), results.append)
    assert results == []


def test_waits_that_are_over_at_once_do_not_deepen_the_stack():
    def at_once() -> Flow[int]:
        total = 0
        for _ in range(MANY):
            total += yield lambda resume: resume(1)
        return total

    results: list[int] = []
    Flows().start(at_once(), results.append)
    assert results == [MANY]


def test_flows_together_end_in_their_own_order():
    flows, asked = Flows(), Asked()
    results: list[list[int]] = []
    flows.start(flows.together([added(asked, 1), added(asked, 1)]), results.append)
    first, second = asked.open
    second(2)
    assert results == []
    first(1)
    assert results == [[1, 2]]


def test_no_flows_together_have_ended_at_once():
    flows = Flows()
    results: list[list[int]] = []
    flows.start(flows.together([]), results.append)
    assert results == [[]]


def test_an_exception_leaves_through_the_callback_that_met_it():
    def failing() -> Flow[None]:
        yield from asked.wait()
        raise ValueError("on purpose")

    asked = Asked()
    Flows().start(failing())
    with pytest.raises(ValueError, match="on purpose"):
        asked.open.pop()(None)


def test_many_nodes_are_asked_for_at_once_and_told_in_the_order_of_their_paths():
    class Store:
        def __init__(self) -> None:
            self.asked: dict[str, Callable[[ZkReply], None]] = {}

        def exists(self, path: str, on_reply: Callable[[ZkReply], None]) -> None:
            self.asked[path] = on_reply

    store: Any = Store()
    results: list[dict[str, ZkReply]] = []
    Flows().start(ZookeeperFlows(store).exist_each(["/b", "/a", "/b"]), results.append)
    for path in ("/a", "/b"):
        store.asked[path](ZkReply(status=ZkStatus.OK, path=path))
    (found,) = results
    assert [(path, reply.path) for path, reply in found.items()] == [("/b", "/b"), ("/a", "/a")]
