"""Requests that only brokers may send, as a controller would send them: they would stop and delete
replicas, end transactions, and change what a broker knows of the cluster."""

from typing import Any

from integration_tests.security.scan.planted import Planted, built
from integration_tests.security.scan.scanned_request import Scanned
from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch
from storage_engine.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from storage_engine.protocol.apis.stop_replica import StopReplicaPartition, StopReplicaRequest
from storage_engine.protocol.apis.update_metadata import UpdateMetadataRequest
from storage_engine.tests.broker.guards.api_cases import O, to_cluster

_ACTION = (to_cluster(O.CLUSTER_ACTION),)
LATE = 1 << 40
"""A number that no order of the controller had before."""


def _order(planted: Planted) -> dict[str, Any]:
    return {
        "controller_id": BrokerId(1),
        "controller_epoch": ControllerEpoch(planted.controller_epoch),
        "broker_epoch": BrokerEpoch(planted.broker_epoch),
        "order_number": LATE,
    }


def _marker(_: Planted) -> Any:
    row = {
        "producer_id": 4_711,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [{"name": "stopped", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    return built(27, markers=[row])


def _deletes_a_replica(planted: Planted) -> StopReplicaRequest:
    stopped = StopReplicaPartition(
        topic="stopped", partition=0, leader_epoch=LeaderEpoch(1_000), delete=True
    )
    return StopReplicaRequest(**_order(planted), partitions=[stopped])


def _forgets_all(planted: Planted) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(**_order(planted), brokers=[], full=True)


def _stops_all(planted: Planted) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(**_order(planted), partitions=[], full=True)


REQUESTS = [
    Scanned(key=27, request=_marker, rights=_ACTION, changes=True),
    Scanned(
        key=7,
        request=lambda planted: ControlledShutdownRequest(
            broker_id=BrokerId(1), broker_epoch=BrokerEpoch(planted.broker_epoch)
        ),
        rights=_ACTION,
    ),
    Scanned(key=5, request=_deletes_a_replica, rights=_ACTION, changes=True),
    Scanned(key=6, request=_forgets_all, rights=_ACTION, changes=True),
    Scanned(key=4, request=_stops_all, rights=_ACTION, changes=True),
]
"""In the order in which they are sent: a broker does little after the last."""
