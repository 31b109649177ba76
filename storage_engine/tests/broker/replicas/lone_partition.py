"""A partition of a broker that has nothing else, and fetch loops that follow one leader, for tests
of one of their parts."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.cluster.leader_doubts import LeaderDoubts
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.replicas.fetcher import FetcherPorts, FetcherSettings
from storage_engine.broker.replicas.fetcher_manager import FetcherManager
from storage_engine.broker.replicas.followed_partition import ReplicationThrottle
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.lease import LeaderLease
from storage_engine.broker.replicas.partition_ports import PartitionPorts
from storage_engine.broker.replicas.purgatory import EndOfTurn
from storage_engine.broker.settings.topic_config import TopicConfig
from storage_engine.core.ports import Endpoint
from storage_engine.core.replication.partition import LagLimits
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog

ENDPOINT = Endpoint(broker_id=1, host="leader", port=9)
BACKOFF_MS = 1000


def partition_ports(
    loop: SimulatedLoop,
    *,
    flush: Callable[[HostedPartition, Callable[[], None] | None, int], None] = lambda *_: None,
    on_failure: Callable[[HostedPartition, Exception], None] = lambda *_: None,
) -> PartitionPorts:
    return PartitionPorts(
        broker_id=2,
        lag=LagLimits(lag_max_ms=10_000),
        clock=loop,
        lease=LeaderLease(lambda: True),
        end_of_turn=EndOfTurn(loop),
        propose_isr=lambda *_: None,
        read_isr=lambda *_: None,
        flush=flush,
        on_failure=on_failure,
    )


def follower_of(
    log: PartitionLog,
    ports: PartitionPorts,
    *,
    flush_before_ack: bool = False,
    min_in_sync: int = 1,
) -> HostedPartition:
    """A replica that follows broker 1."""
    config = TopicConfig(
        log=LogConfig(),
        min_insync_replicas=min_in_sync,
        unclean_leader_election_enable=False,
        flush_before_ack=flush_before_ack,
    )
    made = HostedPartition(
        log.topic_partition,
        log=log,
        topic_id=UUID(int=1),
        config=config,
        high_watermark=0,
        ports=ports,
    )
    made.become_follower(1)
    return made


def fetchers_of(
    loop: SimulatedLoop, leader: Any, *partitions: HostedPartition, max_bytes: int = 1 << 20
) -> FetcherManager:
    """The fetch loops that have just sent the first fetch of these partitions to `leader`, a
    Transport."""
    throttle = ReplicationThrottle(2, clock=loop, leader_rate=lambda: 1, follower_rate=lambda: 1)
    made = FetcherManager(
        FetcherSettings(
            broker_id=2, max_bytes=max_bytes, response_max_bytes=1 << 20, min_bytes=1,
            wait_max_ms=500, backoff_ms=BACKOFF_MS,
        ),
        FetcherPorts(
            transport=leader, scheduler=loop, clock=loop, broker_epoch=lambda: 1,
            keep_log_starts=lambda _: True, throttle=throttle,
            doubts=LeaderDoubts(MetadataCache(), loop),
        ),
    )  # fmt: skip
    for partition in partitions:
        made.add(partition, ENDPOINT)
    made.wake()
    return made
