"""Other programs write below /brokers/ids: brokers stay registered, and nothing else counts as one.
Source: R-CTL4, R-CTL10."""

import json

import pytest

from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.controller.foreign_znodes import (
    TP,
    Reader,
    cluster,
    serves_what_is_sound,
)
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode

__all__ = ["cluster"]


def test_a_broker_whose_registration_others_change_or_remove_registers_again(cluster):
    path = BrokerIdZNode.path(2)
    good = cluster.zookeeper.data(path)
    first = cluster[2].broker_epoch
    cluster.zookeeper.put(path, b"garbage")
    cluster.loop.run_until(lambda: cluster.zookeeper.data(path) == good)
    assert cluster[2].broker_epoch == first
    cluster.zookeeper.drop(path)
    cluster.loop.run_until(lambda: cluster[2].broker_epoch > first)
    serves_what_is_sound(cluster, "after")


@pytest.mark.parametrize("below", ["", "/x"])
def test_a_registration_that_is_no_sessions_is_no_broker_and_keeps_none_out(cluster, caplog, below):
    ghost = {"version": 1, "host": "nowhere", "port": 9092, "jmx_port": -1}
    for broker in (0, 2):
        if broker:
            cluster[broker].kill(session_ends_at_once=True)
        path = f"{BrokerIdZNode.path(broker)}{below}"
        cluster.zookeeper.make_parents(path)
        cluster.zookeeper.put(path, b"")
        cluster.zookeeper.put(BrokerIdZNode.path(broker), json.dumps(ghost).encode())
    cluster.loop.run_for(3000)
    assert 0 not in cluster[1].metadata.brokers
    told = [record for record in caplog.records if "/brokers/ids/0 is no" in record.getMessage()]
    assert len(told) == 1
    cluster[2].start()
    assert 0 not in cluster[1].metadata.brokers
    serves_what_is_sound(cluster, "after")
    state = cluster.state(TopicPartition("after", 0))
    assert 0 not in state.isr
    group = Reader(cluster, "g")
    cluster.loop.run_until(lambda: TP in group.held)
    assert "nowhere" not in group.addresses


def test_a_broker_is_not_given_up_for_what_others_wrote_into_its_registration(cluster, monkeypatch):
    """Its controller reads it at a moment when it can't be made out."""
    controller = cluster.controller
    other = next(broker for broker in cluster.brokers if broker is not controller)
    path = BrokerIdZNode.path(other.id)
    good = cluster.zookeeper.data(path)
    other.pause()
    cluster.zookeeper.put(path, b"garbage")
    cluster.zookeeper.put(f"{BrokerIdZNode.PARENT}/77", b"garbage")
    cluster.loop.run_for(500)
    assert other.id in controller.parts.cluster.controller.acting.core.brokers
    other.resume()
    cluster.loop.run_until(lambda: cluster.zookeeper.data(path) == good)
    serves_what_is_sound(cluster, "after")
