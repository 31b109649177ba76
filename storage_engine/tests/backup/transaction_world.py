"""Producers, coordinators and logs in memory, which go on at random between any two reads of a
backup: the model that its cut is held against.

A transaction writes to its partitions, then its coordinator decides its end by a record, then each
partition gets a marker, then the coordinator notes that all have one.
"""

import random
from dataclasses import dataclass, field

from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import (
    LedgerKey,
    LedgerRecord,
    MemberEnd,
    MemberKey,
    MemberRecord,
    TransactionalIdKey,
    TransactionRecord,
    TransactionState,
)
from storage_engine.protocol.records.record_batch import (
    BatchHeader,
    empty_batch,
    patch,
    read_header,
)
from storage_engine.protocol.state.transaction_batches import encode_entries

DATA = tuple(TopicPartition("data", number) for number in range(3))
COORDINATORS = 2
_BUSY = 0.3
"""How often something happens between two reads. With more no producer ever pauses."""

TRANSACTIONAL, CONTROL = 0x10, 0x20


def header(offset: int, producer_id: int, *, marker: bool) -> BatchHeader:
    """The header of a batch with one offset."""
    plain = read_header(empty_batch(base_offset=offset, next_offset=offset + 1, leader_epoch=0))
    attributes = TRANSACTIONAL | (CONTROL if marker else 0)
    return plain._replace(attributes=attributes, producer_id=producer_id)


@dataclass
class Written:
    """What lies at an offset of a log."""

    producer_id: int
    transaction: int
    marker: bool
    commits: bool = False


@dataclass
class Actor:
    """A producer: an id whose transactions follow each other, or members, each with an id of its
    own, whose ends are decided by a ledger."""

    number: int
    is_sink: bool
    transaction: int = 0
    commits: bool = True
    to_write: list[TopicPartition] = field(default_factory=list)
    partitions: frozenset[TopicPartition] = frozenset()
    to_mark: list[TopicPartition] = field(default_factory=list)
    step: str = "begin"

    @property
    def producer_id(self) -> int:
        return self.number * 1_000 + (self.transaction if self.is_sink else 0)

    @property
    def coordinator(self) -> int:
        return self.number % COORDINATORS


class World:
    def __init__(self, seed: int, producers: int = 3) -> None:
        self.random = random.Random(seed)
        self.logs: dict[TopicPartition, list[Written]] = {tp: [] for tp in DATA}
        self.state: list[list[bytes]] = [[] for _ in range(COORDINATORS)]
        self.actors = [Actor(number, is_sink=number == 2) for number in range(producers)]
        self.is_quiet = False
        for _ in range(self.random.randrange(40)):
            self.step()

    def advance(self) -> None:
        """Anything may happen between two reads."""
        if not self.is_quiet and self.random.random() < _BUSY:
            self.step()

    def pause(self) -> None:
        """Longer than a read: what was decided goes on."""
        for _ in range(self.random.randrange(12)):
            self.step()

    def step(self) -> None:
        actor = self.random.choice(self.actors)
        getattr(self, f"_{actor.step}")(actor)

    def _begin(self, actor: Actor) -> None:
        actor.transaction += 1
        chosen = self.random.sample(DATA, self.random.randrange(1, len(DATA) + 1))
        actor.to_write, actor.partitions = chosen, frozenset(chosen)
        actor.commits = self.random.random() < 0.7
        actor.step = "write"
        if actor.is_sink:
            self._record(actor, (MemberKey(actor.producer_id), self._member(actor)))
        else:
            self._record(actor, self._transaction(actor, TransactionState.ONGOING))

    def _write(self, actor: Actor) -> None:
        if not actor.to_write:
            self._decide(actor)
            return
        tp = actor.to_write.pop()
        self.logs[tp].append(Written(actor.producer_id, actor.transaction, marker=False))

    def _decide(self, actor: Actor) -> None:
        actor.to_mark, actor.step = list(actor.partitions), "mark"
        if actor.is_sink and actor.commits:
            end = MemberEnd(actor.producer_id, 0, True, actor.partitions)
            self._record(actor, (_LEDGER, LedgerRecord(last=actor.transaction, ends=(end,))))
        elif actor.is_sink:
            member = self._member(actor, aborting=True)
            self._record(actor, (MemberKey(actor.producer_id), member))
        else:
            state = TransactionState
            self._record(
                actor,
                self._transaction(
                    actor, state.PREPARE_COMMIT if actor.commits else state.PREPARE_ABORT
                ),
            )

    def _mark(self, actor: Actor) -> None:
        if actor.to_mark:
            tp = actor.to_mark.pop()
            self.logs[tp].append(
                Written(actor.producer_id, actor.transaction, marker=True, commits=actor.commits)
            )
            return
        actor.step = "begin"
        if actor.is_sink:
            self._record(actor, (MemberKey(actor.producer_id), None))
            if actor.commits:
                self._record(actor, (_LEDGER, LedgerRecord(last=actor.transaction)))
        else:
            state = TransactionState
            self._record(
                actor,
                self._transaction(
                    actor, state.COMPLETE_COMMIT if actor.commits else state.COMPLETE_ABORT
                ),
            )

    def _member(self, actor: Actor, *, aborting: bool = False) -> MemberRecord:
        return MemberRecord(
            sink="sink",
            query="query",
            batch=actor.transaction,
            epoch=0,
            timeout_ms=1,
            origin_clock=0,
            aborting=aborting,
            partitions=actor.partitions,
        )

    def _transaction(self, actor: Actor, state: TransactionState):
        record = TransactionRecord(
            producer_id=actor.producer_id,
            producer_epoch=0,
            timeout_ms=1,
            state=state,
            last_update_ms=actor.transaction,
            partitions=frozenset() if state.is_complete else actor.partitions,
        )
        return TransactionalIdKey(f"id-{actor.number}"), record

    def _record(self, actor: Actor, entry) -> None:
        log = self.state[actor.coordinator]
        ((_, batch),) = encode_entries([entry], now_ms=0, part_bytes=1 << 20)
        patch(batch, 0, base_offset=len(log), leader_epoch=0)
        log.append(bytes(batch))


_LEDGER = LedgerKey("sink", "query")
