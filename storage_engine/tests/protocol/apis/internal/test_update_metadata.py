"""UpdateMetadata: the controller sends a broker what it tells clients of the cluster."""

from dataclasses import replace
from uuid import UUID

from storage_engine.core.control.cluster_state import BrokerEndpoint
from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch
from storage_engine.protocol.apis.update_metadata import (
    API,
    UpdateMetadataBroker,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from storage_engine.tests.protocol.apis.buffers import joined
from storage_engine.tests.protocol.apis.internal.checked_messages import ORDER, PART, check_messages

BROKER = UpdateMetadataBroker(
    broker_id=BrokerId(4),
    host="broker-4",
    port=9094,
    epoch=BrokerEpoch(5),
    rack="r1",
    endpoints=(BrokerEndpoint("INTERNAL", "inside", 1), BrokerEndpoint("CLIENT", "outside", 2)),
)
PARTITION = UpdateMetadataPartition(
    topic="flights",
    topic_id=UUID(int=77),
    partition=6,
    leader=BrokerId(7),
    leader_epoch=LeaderEpoch(8),
    isr=(BrokerId(9),),
    replicas=(BrokerId(9), BrokerId(10)),
    offline_replicas=(BrokerId(10),),
)
REQUEST = UpdateMetadataRequest(
    **ORDER, **PART, brokers=[BROKER], partitions=[PARTITION], removed_topics=["weather"]
)


def test_messages_arrive_as_they_were_sent() -> None:
    check_messages(API, REQUEST, UpdateMetadataResponse(error_code=11))


def test_partitions_share_their_replicas_and_nobody_can_change_them() -> None:
    partitions = [PARTITION, replace(PARTITION, partition=7)]
    body = joined(API.encode_request(0, replace(REQUEST, partitions=partitions)))
    first, second = API.decode_request(0, memoryview(body)).partitions
    assert first.replicas is second.replicas
    shared = (first.isr, first.replicas, first.offline_replicas)
    assert [type(each) for each in shared] == [tuple, tuple, tuple]


def test_an_order_is_for_any_incarnation_unless_it_names_one() -> None:
    request = UpdateMetadataRequest(
        controller_id=BrokerId(1), controller_epoch=ControllerEpoch(1), brokers=[]
    )
    data = joined(API.encode_request(0, request))
    assert API.decode_request(0, memoryview(data)).broker_epoch == -1
