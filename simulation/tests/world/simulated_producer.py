"""A transactional producer in simulated time, with the retries of Kafka's clients.

After a retriable error the request goes to the present coordinator or leader; a final error is
raised.
"""

from collections.abc import Callable, Sequence
from typing import Any

from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import ANSWER_MS, enlist_request, enlisted_codes, make_batch
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.messages import (
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
)
from storage_engine.protocol.records.record_batch import TRANSACTIONAL_BIT

PAUSE_MS = 50
TRIES = 600
TRANSACTION = 1
EPOCH_BUMP = 5
"""The first version of EndTxn that bumps the epoch."""


class SimulatedProducer:
    """One producer with a transactional id."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        enlists: bool = True,
    ) -> None:
        """`enlists` False: it leaves that to the leaders, and has an epoch for each transaction
        (KIP-890)."""
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.produce_version, self.end_version = (8, 4) if enlists else (12, 5)
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[TopicPartition, int] = {}

    def init(self) -> None:
        """Get an id and epoch; fences others of this transactional id."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
        )
        answer = self.ask_coordinator(init_producer_id.API, 4, request, lambda a: [a.error_code])
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences = {}

    def add(self, *partitions: TopicPartition) -> None:
        """Enlist partitions."""
        request = enlist_request(self.transactional_id, self.producer_id, self.epoch, partitions)
        self.ask_coordinator(add_partitions_to_txn.API, 3, request, enlisted_codes)

    def end(self, *, commits: bool) -> None:
        request = self.end_request(commits=commits)
        answer = self.ask_coordinator(end_txn.API, self.end_version, request, _code)
        if self.end_version >= EPOCH_BUMP:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}

    def end_request(self, *, commits: bool) -> end_txn.EndTxnRequest:
        return end_txn.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )

    def write(self, tp: TopicPartition, payload: bytes) -> int:
        """Write a batch of one record; return its offset."""
        sequence = self.sequences.get(tp, 0)
        for _ in range(TRIES):
            answer = self.answered(self.send(tp, payload, sequence))
            if answer is not None:
                row = answer.partitions[0]
                code = ErrorCode.of(row.error_code)
                if code is ErrorCode.NONE:
                    self.sequences[tp] = sequence + 1
                    return int(row.base_offset)
                if not code.retriable:
                    raise KafkaError(f"not written to {tp}: {row.error_message}", code)
            self.cluster.loop.run_for(PAUSE_MS)
        raise AssertionError(f"never written to {tp}")

    def send(self, tp: TopicPartition, payload: bytes, sequence: int) -> list[Any]:
        """Write as `write` does, without retries; the answer will be in the list."""
        batch = make_batch(
            payload=payload,
            producer=(self.producer_id, self.epoch, sequence),
            attributes=TRANSACTIONAL_BIT,
        )
        request = ProduceRequest(
            self.transactional_id, -1, ANSWER_MS, [ProducePartition(*tp, batch)]
        )
        leader = self.cluster.state(tp).leader
        version = self.produce_version
        return self.cluster.ask(leader, PRODUCE, version, request) if leader != -1 else []

    def coordinator(self) -> int:
        """Return the broker that coordinates the transactional id, according to any broker."""
        request = find_coordinator.FindCoordinatorRequest(
            key=self.transactional_id, key_type=TRANSACTION
        )
        for _ in range(TRIES):
            for broker in self.cluster.brokers:
                if broker.serving:
                    answer = self.answered(
                        self.cluster.ask(broker.id, find_coordinator.API, 3, request)
                    )
                    if answer is not None and not answer.error_code:
                        return int(answer.node_id)
            self.cluster.loop.run_for(PAUSE_MS)
        raise AssertionError(f"no coordinator for {self.transactional_id}")

    def ask_coordinator(
        self,
        spec: ApiSpec[Req, Resp],
        version: int,
        request: Req,
        codes: Callable[[Resp], Sequence[int]],
    ) -> Resp:
        for _ in range(TRIES):
            asked = self.cluster.ask(self.coordinator(), spec, version, request)
            answer: Resp | None = self.answered(asked)
            if answer is not None:
                worst = max((ErrorCode.of(code) for code in codes(answer)), key=_badness)
                if worst is ErrorCode.NONE:
                    return answer
                if not worst.retriable:
                    raise KafkaError(f"{spec.name} of {self.transactional_id} failed", worst)
            self.cluster.loop.run_for(PAUSE_MS)
        raise AssertionError(f"{spec.name} of {self.transactional_id} never succeeded")

    def answered(self, answers: list[Any]) -> Any | None:
        """Return the answer; None when there was none."""
        self.cluster.loop.run_until(lambda: bool(answers), limit_ms=200_000)
        return None if isinstance(answers[0], TransportError) else answers[0]


def _badness(code: ErrorCode) -> int:
    return 0 if code is ErrorCode.NONE else 1 if code.retriable else 2


def _code(answer: end_txn.EndTxnResponse) -> Sequence[int]:
    return [answer.error_code]
