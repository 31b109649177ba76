"""A broker carries out the orders of its controller one after another, as long as they count."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.order_gate import (
    FILES_STEPS,
    STEPS_PER_TURN,
    NamedReplicas,
    OrderGate,
    Orders,
)
from storage_engine.broker.handlers.controller.orders import FullOrders, LeaderAndIsrHandler
from storage_engine.broker.replicas.lease import LeaderLease
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch, TopicPartition
from storage_engine.core.ports import MetadataStore
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrRequest


class KnownConfigs:
    """Settings that are known at once, or when the test says so."""

    def __init__(self) -> None:
        self.slow = False
        self.held: list = []

    def ensure(self, topics, done) -> None:
        if self.slow:
            self.held.append(done)
        else:
            done()


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop()


def never(code: ErrorCode) -> None:
    raise AssertionError(code)


def order(done: list[Any], what: object, steps: int = 1, *, weight: int = 1):
    def apply():
        for _ in range(steps):
            done.append(what)
            yield weight

    return apply


def test_orders_are_carried_out_one_after_another_however_many_wait(loop):
    configs = KnownConfigs()
    done: list[Any] = []
    orders = Orders(configs, loop)  # type: ignore[arg-type]
    configs.slow = True
    orders.submit({"t"}, order(done, 0), never)
    configs.slow = False
    for number in range(1, 5000):
        orders.submit(set(), order(done, number), never)
    loop.run_for(10)
    assert done == []
    configs.held.pop()()
    loop.run_for(10)
    assert done == list(range(5000))


def test_an_order_that_fails_does_not_hold_up_the_next(loop):
    done: list[Any] = []
    orders = Orders(KnownConfigs(), loop)  # type: ignore[arg-type]

    def fail():
        yield 1
        raise ValueError("broken order")

    refused: list[Any] = []
    orders.submit(set(), fail, refused.append)
    orders.submit(set(), order(done, "next"), never)
    with pytest.raises(ValueError, match="broken order"):
        loop.run_for(1)
    loop.run_for(1)
    assert done == ["next"]
    assert refused == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_long_order_lets_the_loop_serve_others_and_the_next_order_wait(loop):
    done: list[Any] = []
    orders = Orders(KnownConfigs(), loop)  # type: ignore[arg-type]
    orders.submit(set(), order(done, "long", 3 * STEPS_PER_TURN), never)
    orders.submit(set(), order(done, "next"), never)
    loop.call_soon(lambda: loop.call_soon(lambda: done.append("other")))
    loop.run_for(10)
    assert 0 < done.index("other") < 3 * STEPS_PER_TURN
    assert done[-1] == "next"


def test_a_log_that_is_made_or_deleted_has_a_turn_of_its_own(loop):
    done: list[Any] = []
    orders = Orders(KnownConfigs(), loop)  # type: ignore[arg-type]
    orders.submit(set(), order(done, "long", 3, weight=FILES_STEPS), never)

    def others():
        done.append("other")
        if done.count("other") < 4:
            loop.call_soon(others)

    loop.call_soon(others)
    loop.run_for(10)
    turns = "".join(str(each)[0] for each in done)
    assert turns.count("l") == 3 and "ll" not in turns


COUNT = 3 * STEPS_PER_TURN
EVERY = [TopicPartition("t", number) for number in range(COUNT)]


class Replicas:
    """A replica manager that only counts."""

    def __init__(self) -> None:
        self.applied = 0
        self.lease = LeaderLease(lambda: True)
        self.lease.fence()
        self.woken = 0
        self.postponed = SimpleNamespace(forget_all=lambda: None)
        self.logs = set(EVERY)

    def has_log(self, tp: TopicPartition) -> bool:
        return tp in self.logs

    def apply_leadership(self, _item: object, _endpoints: object) -> ErrorCode:
        self.applied += 1
        return ErrorCode.NONE

    def roles_taken(self) -> None:
        self.woken += 1


class Broker:
    """A broker that has got a LeaderAndIsr of all partitions."""

    def __init__(self, *, logs=COUNT):
        self.loop, self.replicas, self.epoch = SimulatedLoop(), Replicas(), [7]
        self.replicas.logs = set(EVERY[:logs])
        self.answers: list[Any] = []
        self.gate = OrderGate(cast(MetadataStore, None), lambda: BrokerEpoch(self.epoch[0]))
        self.gate.controller_epoch, self.gate.controller_id = ControllerEpoch(1), BrokerId(1)
        handler = LeaderAndIsrHandler(
            replicas=self.replicas,
            metadata=MetadataCache(),
            order_gate=self.gate,
            full_orders=FullOrders(
                broker_id=BrokerId(2),
                replicas=self.replicas,
                metadata=MetadataCache(),
                orphaned_logs=None,
                named=NamedReplicas(),
            ),
            orders=Orders(SimpleNamespace(ensure=lambda _topics, done: done()), self.loop),
        )
        request = LeaderAndIsrRequest(
            controller_id=BrokerId(1),
            controller_epoch=ControllerEpoch(1),
            broker_epoch=BrokerEpoch(7),
            partitions=[SimpleNamespace(topic=tp.topic, partition=tp.partition) for tp in EVERY],
            live_leaders=[],
            full=True,
        )
        call = SimpleNamespace(
            respond=self.answers.append,
            connection=SimpleNamespace(number=0),
            refusal=lambda: ErrorCode.NONE,
        )
        handler.handle(call, request)
        self.loop.run_until(lambda: self.replicas.applied > 0)


def test_a_new_log_is_made_in_a_turn_of_its_own():
    assert Broker().replicas.applied == STEPS_PER_TURN
    assert Broker(logs=0).replicas.applied == 1
    assert Broker(logs=2).replicas.applied == 3


@pytest.mark.parametrize("newer_controller", [False, True])
def test_an_order_ends_with_the_session_or_the_controller_that_it_is_of(newer_controller):
    """The rest of it was meant for a former incarnation: it must not lift the fence of the next."""
    broker = Broker()
    replicas = broker.replicas
    assert replicas.applied < COUNT
    if newer_controller:
        broker.gate.controller_epoch = ControllerEpoch(2)
    else:
        broker.epoch[0] = 8
    applied = replicas.applied
    broker.loop.run_for(10)
    (answer,) = broker.answers
    refusal = ErrorCode.STALE_CONTROLLER_EPOCH if newer_controller else ErrorCode.STALE_BROKER_EPOCH
    assert ErrorCode.of(answer.error_code) is refusal
    assert (replicas.applied, replicas.lease.is_fenced, replicas.woken) == (applied, True, 1)


def test_a_part_of_another_order_names_nothing_for_this_one():
    def part(number: int, order: int) -> Any:
        return SimpleNamespace(
            controller_id=1, controller_epoch=1, order_number=order, part=number, goes_on=True
        )

    named = NamedReplicas()
    assert named.expects(part(0, 1)) and not named.expects(part(1, 1))
    named.note(part(0, 1), set(EVERY[:5]))
    assert named.expects(part(1, 1))
    assert not named.expects(part(1, 2)) and not named.expects(part(2, 1))
    named.note(part(1, 1), set(EVERY[5:8]))
    assert named.partitions == set(EVERY[:8])
    named.note(part(0, 2), {EVERY[9]})
    assert named.partitions == {EVERY[9]} and not named.expects(part(2, 1))
