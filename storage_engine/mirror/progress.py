"""The progress of a mirror, in a compacted topic of the target. It is JSON, so that anybody can
read it (`headrace consume __mirror_NAME`).

    key                                                        value
    {"source": "east", "topic": "orders", "partition": 0,      {"source_id": …, "target_id": …,
     "target": "orders"}                                        "offset": 900, "runs": 17}
    the same, and "slot": [0, 3]                               {"source_id": …, "target_id": …,
                                                                "run": 7, "copied": [s, e, t, n]}

`offset` is the next one to copy; `copied` is a run of `offsets`. It is written in the transaction
of the records, so that both are there or neither. An entry for an earlier topic of the same name
does not count. This module does no IO. Source: R-CLI6.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.mirror.offsets import OffsetMap, OffsetRun, joined, slot_of

Row = tuple[bytes, bytes]
"""Key and value of a record of the progress topic."""


class Copy(NamedTuple):
    """A partition of a source and the one that it is copied to."""

    source: str
    tp: TopicPartition
    target: TopicPartition


class TopicIds(NamedTuple):
    """The topic ids in source and target, as text."""

    source: str
    target: str


class ProgressError(HeadraceError):
    """A record of the topic that no mirror has written."""


@dataclass(slots=True)
class PartitionProgress:
    """How far a partition is copied. It counts only while both topics have these ids: a topic that
    was created again begins anew."""

    ids: TopicIds
    next_offset: int
    runs: OffsetMap = field(default_factory=OffsetMap)


class Moved(NamedTuple):
    """The progress that one transaction makes in a partition."""

    next_offset: int
    runs: list[OffsetRun]
    """Ascending."""


class MirrorProgress:
    """The contents of the progress topic, by copied partition."""

    def __init__(self) -> None:
        self._partitions: dict[Copy, PartitionProgress] = {}

    def of(self, copy: Copy, ids: TopicIds) -> PartitionProgress | None:
        """Return the progress; None where nothing of these topics was copied yet."""
        found = self._partitions.get(copy)
        return found if found is not None and found.ids == ids else None

    def begin(self, copy: Copy, ids: TopicIds, next_offset: int) -> PartitionProgress:
        """Begin a partition anew; the progress of earlier topics of these names is forgotten."""
        made = self._partitions[copy] = PartitionProgress(ids, next_offset)
        return made

    def load(self, rows: Iterable[Row]) -> None:
        """Apply the records of the progress topic, in their order."""
        for key, value in rows:
            copy, slotted = _read_key(key)
            body = _document(value)
            try:
                ids = TopicIds(body["source_id"], body["target_id"])
                found = self.of(copy, ids) or self.begin(copy, ids, 0)
                if slotted:
                    found.runs.put(body["run"], OffsetRun(*body["copied"]))
                else:
                    found.next_offset = body["offset"]
            except (KeyError, TypeError) as error:
                raise _foreign(value) from error

    def rows(self, moved: Mapping[Copy, Moved]) -> Iterator[Row]:
        """Yield the records to write with a transaction; nothing changes here."""
        for copy, (next_offset, runs) in moved.items():
            known = self._partitions[copy]
            ids = {"source_id": known.ids.source, "target_id": known.ids.target}
            number = known.runs.count
            for run in joined(runs):
                number += 1
                yield (
                    _key(copy, list(slot_of(number))),
                    _encoded({**ids, "run": number, "copied": list(run)}),
                )
            yield _key(copy), _encoded({**ids, "offset": next_offset, "runs": number})

    def committed(self, moved: Mapping[Copy, Moved]) -> None:
        """Apply `moved`, whose transaction is committed."""
        for copy, (next_offset, runs) in moved.items():
            known = self._partitions[copy]
            known.next_offset = next_offset
            for run in joined(runs):
                known.runs.put(known.runs.count + 1, run)

    def target_end(self, copy: Copy) -> int:
        """Return an offset of the target before which no later copied record lies."""
        return self._partitions[copy].runs.target_end

    def translate(self, copy: Copy, offset: int) -> int | None:
        """See OffsetMap; None also for a partition that is not copied."""
        found = self._partitions.get(copy)
        return None if found is None else found.runs.translate(offset)


def _key(copy: Copy, slot: list[int] | None = None) -> bytes:
    fields: dict[str, str | int | list[int]] = {
        "source": copy.source,
        "topic": copy.tp.topic,
        "partition": copy.tp.partition,
        "target": copy.target.topic,
    }
    if slot is not None:
        fields["slot"] = slot
    return _encoded(fields)


def _read_key(key: bytes) -> tuple[Copy, bool]:
    fields = _document(key)
    try:
        number = fields["partition"]
        copy = Copy(
            fields["source"],
            TopicPartition(fields["topic"], number),
            TopicPartition(fields["target"], number),
        )
    except KeyError as error:
        raise _foreign(key) from error
    return copy, "slot" in fields


def _encoded(fields: Mapping[str, str | int | list[int]]) -> bytes:
    """Encode fields; equal fields have equal bytes, since compaction compares keys."""
    return json.dumps(fields, separators=(",", ":")).encode()


def _document(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise _foreign(data) from error
    if not isinstance(found, dict):
        raise _foreign(data)
    return found


def _foreign(data: bytes) -> ProgressError:
    text = data[:80].decode(errors="replace")
    return ProgressError(
        f"the topic of the mirror's progress has a record that no mirror has written ({text}): "
        "give the mirror another --name"
    )
