"""The addresses of a cluster's live brokers, by the security protocol of the client (R-CLI1).
`test_brokers_through_zookeeper` has the nodes that are no brokers."""

from storage_engine.core.ids import BrokerId
from storage_engine.zookeeper.connect_string import ConnectString
from storage_engine.zookeeper.live_brokers import live_addresses, live_hosts
from storage_engine.zookeeper.znodes.cluster_znodes import NO_PORT, BrokerIdZNode


def test_brokers_are_found_by_their_listener_of_the_protocol(zookeeper, session, loop, chroot):
    connect = ConnectString.parse(zookeeper.connect + chroot)
    assert live_addresses(connect, 10_000) == [], "nothing was ever registered"
    secured = BrokerIdZNode(
        broker_id=BrokerId(2),
        host=None,
        port=NO_PORT,
        endpoints=("CLIENTS://two:9093",),
        protocols={"CLIENTS": "SASL_SSL"},
    )
    for node in (
        BrokerIdZNode(broker_id=BrokerId(1), host="one", port=9092),
        secured,
    ):
        path = BrokerIdZNode.path(node.broker_id)
        assert loop.reply_of(session.create, path, node.encode(), make_parents=True).ok
    assert live_addresses(connect, 10_000) == [("one", 9092)]
    assert live_addresses(connect, 10_000, "SASL_SSL") == [("two", 9093)]
    assert live_addresses(connect, 10_000, "SSL") == []
    assert live_hosts(connect, 10_000) == {1: "one", 2: "two"}
