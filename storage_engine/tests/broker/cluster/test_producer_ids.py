"""Blocks of producer ids when ZooKeeper's answers are lost: KIP-98."""

import pytest

from simulation.world.clock import ProcessLoop
from simulation.world.zookeeper import SimulatedZooKeeper
from storage_engine.broker.cluster.producer_ids import ProducerIds
from storage_engine.core.errors import ErrorCode
from storage_engine.tests.zookeeper.lossy_session import (
    ROUND_TRIP_MS,
    LossySession,
    new_server,
    settle,
)
from storage_engine.zookeeper.znodes.cluster_znodes import ProducerIdBlockZNode


class Allocator:
    """The producer ids of one broker, and what came of asking for them."""

    def __init__(self, server: SimulatedZooKeeper, broker_id: int) -> None:
        self.store = LossySession(server, ProcessLoop(server.loop))
        self.ids = ProducerIds(self.store, broker_id=broker_id)
        self.given: list[int] = []
        self.failures: list[ErrorCode] = []

    def ask(self) -> None:
        def on_id(producer_id: int, code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self.given.append(producer_id)
            else:
                self.failures.append(code)

        self.ids.allocate(on_id)


@pytest.mark.parametrize("what", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("nth", range(2))
@pytest.mark.parametrize("has_block", [False, True])
def test_who_asks_while_an_answer_is_lost_is_refused_and_the_next_gets_an_id_of_its_own(
    what: str, nth: int, has_block: bool
) -> None:
    server = new_server()
    other, allocator = Allocator(server, 1), Allocator(server, 2)
    if has_block:
        other.ask()
        settle(server)
    allocator.ask()
    allocator.ask()
    server.loop.run_for(nth * ROUND_TRIP_MS)
    setattr(allocator.store, what, True)
    settle(server)
    assert allocator.failures == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    allocator.ask()
    other.ask()
    settle(server)
    assert len(allocator.given) == 1
    given = allocator.given + other.given
    assert len(set(given)) == len(given)


def test_of_two_brokers_that_claim_at_once_each_has_a_block_of_its_own() -> None:
    server = new_server()
    allocators = [Allocator(server, number) for number in range(5)]
    for allocator in allocators:
        allocator.ask()
    settle(server)
    size = ProducerIdBlockZNode.BLOCK_SIZE
    assert sorted(each.given[0] for each in allocators) == [size * n for n in range(5)]


def test_who_asks_again_when_the_last_id_of_a_block_is_given_gets_the_first_of_the_next() -> None:
    server = new_server()
    allocator = Allocator(server, 1)
    for _ in range(ProducerIdBlockZNode.BLOCK_SIZE - 1):
        allocator.ask()
    allocator.ids.allocate(lambda _id, _code: allocator.ask())
    settle(server)
    allocator.ask()
    last = ProducerIdBlockZNode.BLOCK_SIZE - 1
    assert allocator.given[-2:] == [last + 1, last + 2]
    assert last not in allocator.given
