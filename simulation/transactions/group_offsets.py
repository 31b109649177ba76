"""Clients that commit a group's offsets, in transactions and without, and a client that reads them.

The metadata of a commit is its name; a reader requests offsets with and without waiting for
unstable ones. Source: KIP-98, KIP-447, KIP-890.
"""

from collections.abc import Callable
from typing import TypeVar

from simulation.transactions.clients import GROUP_KEY, Actor, Asker, Then, Way, World
from simulation.transactions.group_ledger import GROUP, GROUP_STATE, OffsetCommit
from simulation.transactions.ledger import ObservedTransaction
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages import (
    add_offsets_to_txn,
    offset_commit,
    offset_fetch,
    txn_offset_commit,
)

Topic = TypeVar("Topic")
Row = TypeVar("Row")

PAUSE_MS = (100, 700)
ALONE = 0.25
"""The share of the reader's requests that commit offsets without a transaction."""
ENLISTING_VERSION = 5
"""The version of TxnOffsetCommit from which on the group's coordinator enlists its partition."""

_TxnTopic = txn_offset_commit.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_Topic = offset_commit.OffsetCommitRequest.OffsetCommitRequestTopic
_Group = offset_fetch.OffsetFetchRequest.OffsetFetchRequestGroup


def way_to_group() -> Way:
    return Way(GROUP, GROUP_KEY, GROUP_STATE)


def _some_offsets(world: World) -> dict[TopicPartition, int]:
    """Return offsets that differ in each commit."""
    some = world.choose.sample(world.partitions, world.choose.randint(1, len(world.partitions)))
    return {tp: world.number() for tp in some}


def _codes(
    answer: offset_commit.OffsetCommitResponse | txn_offset_commit.TxnOffsetCommitResponse,
) -> list[int]:
    return [row.error_code for topic in answer.topics for row in topic.partitions]


class OffsetSender:
    """Commits offsets in the transactions of one producer."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._way = way_to_group()
        self._waiting: ObservedTransaction | None = None

    def is_waiting(self, transaction: ObservedTransaction) -> bool:
        """Return True while the group's coordinator has not answered."""
        return self._waiting is transaction

    def commit(
        self,
        transaction: ObservedTransaction,
        *,
        enlists: bool,
        is_wanted: Callable[[], bool],
        then: Then,
    ) -> None:
        """Commit offsets; `enlists`: the producer enlists the group's partition itself."""
        actor = self._actor
        if not enlists:
            self._commit(transaction, ENLISTING_VERSION, is_wanted, then)
            return
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=actor.transactional_id,
            producer_id=actor.producer_id,
            producer_epoch=actor.epoch,
            group_id=GROUP,
        )

        def on_enlisted(
            _answer: add_offsets_to_txn.AddOffsetsToTxnResponse, code: ErrorCode
        ) -> None:
            if code:
                then(code)
            else:
                self._commit(transaction, 3, is_wanted, then)

        actor.ask(
            actor.way,
            add_offsets_to_txn.API,
            3,
            request,
            lambda a: [a.error_code],
            on_enlisted,
            is_wanted=is_wanted,
            # It would begin another transaction under the same epoch, which an echo of the commit,
            # without a sequence number, would then join (as in Kafka; KIP-890 ends that).
            has_echo=False,
        )

    def _commit(
        self,
        transaction: ObservedTransaction,
        version: int,
        is_wanted: Callable[[], bool],
        then: Then,
    ) -> None:
        actor, world = self._actor, self._actor.world
        name = f"offsets {world.number()} of {transaction.name}"
        commit = OffsetCommit(name, _some_offsets(world), transaction)
        world.groups.sends(commit)
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=actor.transactional_id,
            group_id=GROUP,
            producer_id=actor.producer_id,
            producer_epoch=actor.epoch,
            topics=_rows(_TxnTopic, _TxnTopic.TxnOffsetCommitRequestPartition, commit),
        )
        self._waiting = transaction

        def on_answer(_answer: txn_offset_commit.TxnOffsetCommitResponse, code: ErrorCode) -> None:
            self._waiting = None
            if code is ErrorCode.NONE:
                world.groups.record_answer(commit)
            then(code)

        actor.ask(
            self._way,
            txn_offset_commit.API,
            version,
            request,
            _codes,
            on_answer,
            is_wanted=is_wanted,
        )


class OffsetReader(Asker):
    """Reads the group's offsets, and commits some without a transaction."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "offset reader")
        self._way = way_to_group()
        self.has_ended = False
        """True when it has read all offsets, stable, after the end of everything else."""
        self._is_last = False

    def run(self) -> None:
        if self.world.over:
            return
        if self.choose.random() < ALONE:
            self._commit()
        else:
            self._read(require_stable=self.choose.random() < 0.5)

    def read_last(self) -> None:
        """Read the stable offsets, and wait for them."""
        if not self._is_last:
            self._is_last = True
            self._read(require_stable=True)

    def _later(self) -> None:
        self.world.later(self.run, within_ms=PAUSE_MS)

    def _commit(self) -> None:
        world = self.world
        commit = OffsetCommit(f"offsets {world.number()}", _some_offsets(world), None)
        world.groups.sends(commit)
        request = offset_commit.OffsetCommitRequest(
            group_id=GROUP, topics=_rows(_Topic, _Topic.OffsetCommitRequestPartition, commit)
        )

        def on_answer(_answer: offset_commit.OffsetCommitResponse, code: ErrorCode) -> None:
            assert code is ErrorCode.NONE, "nobody is in the group"
            world.groups.record_answer(commit)
            self._later()

        self.ask(self._way, offset_commit.API, 8, request, _codes, on_answer)

    def _read(self, *, require_stable: bool) -> None:
        world = self.world
        is_last = self._is_last
        places = world.groups.places()
        request = offset_fetch.OffsetFetchRequest(
            groups=[_Group(group_id=GROUP, topics=None)], require_stable=require_stable
        )

        def codes(answer: offset_fetch.OffsetFetchResponse) -> list[int]:
            (group,) = answer.groups
            # Offsets may be unstable for long: the stable ones are checked then.
            rows = [row for topic in group.topics for row in topic.partitions] if is_last else []
            return [group.error_code, *(row.error_code for row in rows)]

        def on_answer(answer: offset_fetch.OffsetFetchResponse, code: ErrorCode) -> None:
            assert code is ErrorCode.NONE, "anybody may read them"
            (group,) = answer.groups
            found = {
                TopicPartition(topic.name, row.partition_index): row
                for topic in group.topics
                for row in topic.partitions
                if not row.error_code
            }
            for tp, row in found.items():
                world.groups.check_read(
                    tp,
                    row.committed_offset,
                    row.metadata or "",
                    places.get(tp, -1),
                    is_fresh=self.answer_times.is_of_leader,
                )
            if is_last:
                world.groups.check_stable(places, found)
                self.has_ended = True
            else:
                self._later()

        self.ask(self._way, offset_fetch.API, 8, request, codes, on_answer)


def _rows(
    topic: Callable[..., Topic], partition: Callable[..., Row], commit: OffsetCommit
) -> list[Topic]:
    rows: dict[str, list[Row]] = {}
    for tp, offset in commit.offsets.items():
        row = partition(
            partition_index=tp.partition, committed_offset=offset, committed_metadata=commit.name
        )
        rows.setdefault(tp.topic, []).append(row)
    return [topic(name=name, partitions=some) for name, some in rows.items()]
