"""Brokers that leave, as the controller decides. Source: R-CTL9."""

from storage_engine.core.control.controller_events import (
    BrokersChanged,
    ControlledShutdownRequested,
    ShutdownProgress,
    StatesRead,
)
from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
)
from storage_engine.tests.core.control.controller_bench import TP, brokers, running, state


def leave(broker: int, epoch: int = 1) -> ControlledShutdownRequested:
    return ControlledShutdownRequested(broker=BrokerId(broker), broker_epoch=BrokerEpoch(epoch))


def test_a_leaving_broker_hands_over_and_hears_when_nothing_is_left():
    driven = running()
    driven.step(leave(1))
    assert driven.of(ShutdownProgress)[0].remaining == (TP,)
    assert (driven.writes()[0].state.leader, driven.writes()[0].state.isr) == (2, (2, 3))
    driven.answer()
    assert driven.of(ShutdownProgress)[0].remaining == (TP,), "its new leader has to be told"
    driven.deliver_all()
    assert driven.of(ShutdownProgress)[0].remaining == ()


def test_a_leaving_broker_does_not_wait_for_what_nobody_can_take_over():
    driven = running(known=state(1, 1))
    driven.step(leave(1))
    assert driven.writes() == []
    assert driven.of(ShutdownProgress)[0].remaining == ()


def test_a_leaving_broker_is_not_elected_while_another_can_lead():
    driven = running()
    driven.step(leave(2))
    driven.answer()
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    assert driven.writes()[0].state.leader == 3


def test_a_shutdown_of_an_earlier_incarnation_is_ignored():
    driven = running()
    driven.step(leave(1, epoch=77))
    assert driven.writes() == []


def test_a_broker_that_came_back_is_not_leaving_any_more():
    driven = running()
    driven.step(leave(3))
    driven.answer()
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3, b3=2)))
    assert driven.of(ShutdownProgress) == []
    driven.step(StatesRead(states={TP: state(2, 2, 3, version=9)}))
    driven.step(BrokersChanged(brokers=brokers(3, b3=2)))
    assert driven.writes()[0].state.leader == 3
