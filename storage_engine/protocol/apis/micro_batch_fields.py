"""Fields that the requests for micro-batches share: members, origins, the committer of a batch,
and an answer that is an error code alone.

    members    array of (producer_id int64, epoch int16)
    origins    array of (topic string, array of (partition int32, offset int64)); inclusive
    claim      micro_batch int64; attempt, write uuid; all zeros: none
    committed  owner string; run uuid, or zeros; rows, winner int64: -1 where unknown

All of these APIs are Headrace's own, and flexible (KIP-482). Source: R-SPARK2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from storage_engine.core.ids import TopicPartition, by_topic
from storage_engine.protocol.apis.fields import custom, int16, nullable_string
from storage_engine.protocol.apis.wire import Reader, Writer

UNKNOWN_ROWS = -1
NOBODY = -1

MEMBER_BYTES = 10
ORIGIN_BYTES = 12

Members = frozenset[tuple[int, int]]
"""The (producer id, epoch) of each member."""

Origins = Mapping[TopicPartition, int]
"""By source partition the highest offset, inclusive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResponse:
    """An answer that has nothing but an error code and its message."""

    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)


@dataclass(frozen=True, slots=True)
class CommittedBy:
    """The write that committed a batch, as far as the coordinator still knows it."""

    owner: str = ""
    run: UUID | None = None
    rows: int = UNKNOWN_ROWS
    """The number of rows of the tasks, including those that the sink already had by origin."""
    winner: int = NOBODY
    """The producer id of one of its members. A driver that has named this member asks about its own
    commit, whose answer was lost."""


UNKNOWN_COMMITTER = CommittedBy()


@dataclass(frozen=True, slots=True)
class ClaimedBy:
    """Which write of a streaming query's `foreachBatch` a named batch write is."""

    micro_batch: int
    """Spark's number of the micro-batch."""
    attempt: UUID
    """The call of `foreachBatch`."""
    write: UUID
    """The write within it, which no other one shares."""


def _write_committed(writer: Writer, committed: CommittedBy) -> None:
    writer.string(committed.owner)
    _write_run(writer, committed.run)
    writer.int64(committed.rows)
    writer.int64(committed.winner)


def _read_committed(reader: Reader) -> CommittedBy:
    return CommittedBy(reader.name(), _read_run(reader), reader.int64(), reader.int64())


_NO_RUN = UUID(int=0)


def _write_run(writer: Writer, run: UUID | None) -> None:
    writer.uuid(run or _NO_RUN)


def _read_run(reader: Reader) -> UUID | None:
    run = reader.uuid()
    return None if run == _NO_RUN else run


def _write_claim(writer: Writer, claim: ClaimedBy | None) -> None:
    writer.int64(0 if claim is None else claim.micro_batch)
    writer.uuid(_NO_RUN if claim is None else claim.attempt)
    writer.uuid(_NO_RUN if claim is None else claim.write)


def _read_claim(reader: Reader) -> ClaimedBy | None:
    claim = ClaimedBy(reader.int64(), reader.uuid(), reader.uuid())
    return None if _NO_RUN in (claim.attempt, claim.write) else claim


def _write_members(writer: Writer, members: Members) -> None:
    writer.count(len(members))
    for producer_id, epoch in sorted(members):
        writer.int64(producer_id)
        writer.int16(epoch)


def _read_members(reader: Reader) -> Members:
    return frozenset(reader.array(MEMBER_BYTES, lambda: (reader.int64(), reader.int16())))


def _write_origins(writer: Writer, origins: Origins) -> None:
    topics = by_topic(dict(sorted(origins.items())))
    writer.count(len(topics))
    for topic, offsets in topics.items():
        writer.string(topic)
        writer.count(len(offsets))
        for partition, offset in offsets:
            writer.int32(partition)
            writer.int64(offset)


def _read_origins(reader: Reader) -> Origins:
    origins: dict[TopicPartition, int] = {}
    for _ in range(reader.count(2)):
        topic = reader.name()
        for _ in range(reader.count(ORIGIN_BYTES)):
            source = TopicPartition(topic, reader.int32())
            origins[source] = reader.int64()
    return origins


def committed() -> CommittedBy:
    return custom(_read_committed, _write_committed, 33, CommittedBy)


def uuid_or_none() -> UUID | None:
    """A UUID; None is written as zeros."""
    return custom(_read_run, _write_run, 16, lambda: None)


def claim() -> ClaimedBy | None:
    return custom(_read_claim, _write_claim, 40, lambda: None)


def members() -> Members:
    return custom(_read_members, _write_members, 1, frozenset)


def origins() -> Origins:
    return custom(_read_origins, _write_origins, 1, dict)
