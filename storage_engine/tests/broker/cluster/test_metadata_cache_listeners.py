"""Which address of a broker is used: by clients that of the listener they came by, between brokers
that of their own listener, also while it is being changed."""

from storage_engine.broker.cluster.leader_doubts import LeaderDoubts
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.handlers.administration.metadata import ClusterForClients
from storage_engine.core.control.cluster_state import BrokerEndpoint, BrokerInfo
from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch
from storage_engine.protocol.apis.update_metadata import UpdateMetadataBroker, UpdateMetadataRequest
from storage_engine.tests.log.support import ManualClock

BOTH = (BrokerEndpoint("INTERNAL", "inside", 1), BrokerEndpoint("CLIENT", "outside", 2))


def broker(number: int, *endpoints: BrokerEndpoint) -> UpdateMetadataBroker:
    """As a controller tells it that talks to others by INTERNAL."""
    return UpdateMetadataBroker(
        broker_id=BrokerId(number),
        host="inside",
        port=1,
        epoch=BrokerEpoch(5),
        endpoints=endpoints,
    )


def cache(listener: str, *brokers: UpdateMetadataBroker) -> MetadataCache:
    known = MetadataCache(listener)
    known.update(
        UpdateMetadataRequest(
            controller_id=BrokerId(1), controller_epoch=ControllerEpoch(1), brokers=brokers
        )
    )
    return known


def address(info: BrokerInfo) -> tuple[str, int]:
    return info.host, info.port


def test_a_broker_reaches_others_by_its_own_listener() -> None:
    for listener, expected in (("INTERNAL", ("inside", 1)), ("CLIENT", ("outside", 2))):
        assert address(cache(listener, broker(1, *BOTH)).brokers[BrokerId(1)]) == expected


def test_a_broker_without_that_listener_is_reached_as_the_controller_does() -> None:
    known = cache("NEW", broker(1, *BOTH), broker(2))
    assert {address(info) for info in known.brokers.values()} == {("inside", 1)}


def test_clients_get_the_brokers_that_have_their_listener() -> None:
    known = cache("INTERNAL", broker(1, *BOTH), broker(2, BOTH[0]), broker(3))
    cluster = ClusterForClients(
        cluster_id="c",
        broker_id=BrokerId(1),
        metadata=known,
        doubts=LeaderDoubts(known, ManualClock()),
        has_lease=lambda: True,
        scheduler=None,
    )
    assert [address(info) for info in cluster.brokers_at("CLIENT")] == [("outside", 2)]
    assert [info.broker_id for info in cluster.brokers_at("INTERNAL")] == [1, 2]
    # It registers no endpoints, so it has the one listener that all had before.
    assert [info.broker_id for info in cluster.brokers_at("PLAINTEXT")] == [3]
