"""Coordinators of transactions, for the runner of coordinators: their topic, their records and
their markers.

Source: KIP-98.
"""

import logging
from dataclasses import dataclass

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.topic_lookup import TopicLookup
from storage_engine.broker.coordinators.coordinators import TransactionKind, TransactionRunner
from storage_engine.broker.coordinators.runner import CoordinatorKind
from storage_engine.broker.coordinators.state_load import StateCodec
from storage_engine.broker.coordinators.state_topic import StateTopicPlan
from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.transactions.marker_sender import MarkerSender
from storage_engine.broker.transactions.marker_writes import MarkerWrites
from storage_engine.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.core.ports import Clock, Scheduler
from storage_engine.core.transactions.transaction_events import (
    CheckTimeouts,
    Contradiction,
    MarkersWritten,
    TransactionAnswer,
    TransactionEffect,
)
from storage_engine.core.transactions.transaction_state import (
    StateContent,
    StateEntry,
    coordinated_name,
    state_partition,
)
from storage_engine.core.transactions.transactions import TransactionCoordinator, refusal
from storage_engine.core.transactions.verification_guard import searched_partition
from storage_engine.protocol.transport import Transport

log = logging.getLogger(__name__)


def _state_partition(name: str, partitions: int) -> int:
    number = searched_partition(name)
    if number is not None and number < partitions:
        return number
    return state_partition(coordinated_name(name), partitions)


PLAN = StateTopicPlan(
    topic=TRANSACTION_STATE_TOPIC,
    purpose="transactions",
    partitions="transaction.state.log.num.partitions",
    replication_factor="transaction.state.log.replication.factor",
    segment_bytes="transaction.state.log.segment.bytes",
    config={"min.insync.replicas": "transaction.state.log.min.isr"},
    number_of=_state_partition,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerPorts:
    """The parts of the broker that the sending of markers needs."""

    broker_id: int
    writes: MarkerWrites
    metadata: MetadataCache
    topics: TopicLookup
    transport: Transport
    scheduler: Scheduler
    clock: Clock


def transaction_coordinators(config: BrokerConfig, ports: MarkerPorts) -> TransactionKind:
    return CoordinatorKind(
        name="transactions",
        topic=TRANSACTION_STATE_TOPIC,
        load_codec=_load_codec,
        new_core=lambda max_message_bytes: TransactionCoordinator(
            max_message_bytes=max_message_bytes,
            producer_timeout_max_ms=config.integer("transaction.max.timeout.ms"),
            expiration_ms=config.integer("transactional.id.expiration.ms"),
        ),
        new_carrier=lambda runner: _Markers(runner, ports),
        tick=lambda at: CheckTimeouts(at=at),
        writes=lambda _event: True,
        without_append=lambda _event: None,
        answer_type=TransactionAnswer,
        refusal=refusal,
    )


def _load_codec() -> StateCodec[StateEntry, StateContent]:
    # Imported here since it needs Arrow.
    from storage_engine.protocol.state import transaction_batches

    return transaction_batches


class _Markers:
    """Sends the markers of one coordinator."""

    def __init__(self, runner: TransactionRunner, ports: MarkerPorts) -> None:
        self._runner = runner
        self._clock = ports.clock
        self.sender = MarkerSender(
            coordinator_epoch=runner.leader_epoch,
            broker_id=ports.broker_id,
            metadata=ports.metadata,
            topics=ports.topics,
            transport=ports.transport,
            scheduler=ports.scheduler,
            writes=ports.writes,
            on_written=self._written,
        )

    def carry_out(self, effect: TransactionEffect) -> None:
        if isinstance(effect, Contradiction):
            log.error(
                "%s: requests for %s are refused until an operator has repaired the log: %s",
                self._runner.topic_partition, effect.key, effect.reason,
            )  # fmt: skip
            return
        self.sender.send(effect)

    def begin(self) -> None:
        """Do nothing: what the coordinator has to go on with is among its first effects."""

    def lead_on(self, leader_epoch: int) -> None:
        self.sender.coordinator_epoch = leader_epoch

    def close(self) -> None:
        self.sender.close()

    def _written(self, producer_id: int, epoch: int, partitions: frozenset[TopicPartition]) -> None:
        self._runner.submit(
            MarkersWritten(
                producer_id=producer_id,
                producer_epoch=epoch,
                partitions=partitions,
                now_ms=self._clock.wall_ms(),
            )
        )
