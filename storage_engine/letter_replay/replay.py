"""Sends dead letters back to the topics they came from, each once. The letters sent, the letters
kept and the progress in the dead-letter topic are committed together, or not at all.

Each commit is a micro-batch of an exactly-once sink (`client.micro_batches`):

    sink       dead-letters/<topic>
    query      replay
    origins    for each partition of the dead-letter topic, the offset of the last letter done
    number     the sum of all origins, each plus one: it grows with every commit

A chunk of a partition is one micro-batch: selected letters go to their origin, the others to the
end of their own partition, because one offset per partition records the progress. Letters behind
the last selected one of a partition stay untouched. A killed run leaves a chunk open, which the
next run's first commit aborts. Source: R-SPARK2.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.micro_batches import (
    AlreadyCommitted,
    CommitOutcome,
    MicroBatches,
    MicroBatchMember,
)
from storage_engine.client.producer.partitioner import partitions_for_keys
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition, topic_id_to_text
from storage_engine.letter_replay.selection import LetterSelection, Mask, Survey, first_of
from storage_engine.protocol.dead_letters import Letters, read_letters, without_reason
from storage_engine.protocol.records.record_decoder import DecodedRecords, iter_decoded
from storage_engine.protocol.records.record_encoder import iter_encoded
from storage_engine.protocol.records.record_headers import HEADERS_TYPE

READ_COMMITTED = "read_committed"
QUERY = "replay"
TIMEOUT_MS = 60_000
"""The timeout after which the open chunk of a killed run stops holding up readers."""

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of letters that have been sent back."""


class ConcurrentReplayError(HeadraceError):
    """Another run is sending letters of the same topic back."""


class LetterReplay:
    """One run over the letters of one topic, up to the topic's end at the start of the run."""

    def __init__(
        self, cluster: Cluster, topic: str, selection: LetterSelection, *, limit: int | None = None
    ) -> None:
        """`limit`: the most letters to send back, from the first on, partition by partition."""
        self._cluster = cluster
        self._topic = topic
        self._selection = selection
        self._limit = limit
        self._batches = MicroBatches(cluster, f"dead-letters/{topic}", QUERY)
        found = cluster.topic(topic)
        self._source = f"id:{topic_id_to_text(found.topic_id)}"
        self._partitions = [TopicPartition(topic, number) for number in found.partitions]
        self._done = self._ask_done()
        self._ends = cluster.list_offsets(
            dict.fromkeys(self._partitions, LATEST), isolation=READ_COMMITTED
        )

    def survey(self) -> Survey:
        """Read all waiting letters; write nothing. KafkaError when a topic of origin is gone."""
        survey = Survey()
        for tp in self._partitions:
            for records in self._read(tp, self._ends[tp]):
                letters = _letters(records)
                mask = self._mask(letters, survey.selected)
                survey.count(tp, records.offsets, letters, mask)
        for topic in sorted({topic for topic, _ in survey.kinds}):
            self._cluster.topic(topic)
        return survey

    def run(self, survey: Survey, on_progress: Progress) -> int:
        """Send back the letters that `survey` has selected; return their number. At a
        ConcurrentReplayError only the letters reported to `on_progress` have been sent."""
        sent = 0
        for tp, last in survey.last_selected.items():
            for records in self._read(tp, last + 1):
                letters = _letters(records)
                mask = self._mask(letters, sent)
                self._commit(tp, records, letters, mask)
                sent += int(mask.sum())
                on_progress(sent)
        return sent

    def _mask(self, letters: Letters, selected: int) -> Mask:
        mask = self._selection.mask(letters)
        return mask if self._limit is None else first_of(mask, self._limit - selected)

    def _read(self, tp: TopicPartition, end_offset: int) -> Iterator[DecodedRecords]:
        """Yield the waiting letters below `end_offset`, in pieces of about a mebibyte."""
        first = self._cluster.list_offsets({tp: EARLIEST})[tp]
        start = max(first, self._done.get(self._key(tp), -1) + 1)
        if start >= end_offset:
            return
        reader = BatchFetcher(self._cluster, {tp: (start, end_offset)}, isolation=READ_COMMITTED)
        pieces = itertools.chain.from_iterable(each.committed() for each in reader.read())
        yield from iter_decoded(
            pieces, start_offset=start, end_offset=end_offset, include_headers=True
        )

    def _commit(
        self, tp: TopicPartition, records: DecodedRecords, letters: Letters, mask: Mask
    ) -> None:
        batch = sum(offset + 1 for offset in self._done.values())
        member = self._batches.join(batch, timeout_ms=TIMEOUT_MS)
        if isinstance(member, AlreadyCommitted) or member.origins != self._done:
            if isinstance(member, MicroBatchMember):
                self._batches.abort([member.id])
            raise self._concurrent()
        written = False
        try:
            with BatchWriter(self._cluster, transaction=member) as writer:
                for destination, rows in self._destinations(tp, records, letters, mask):
                    for encoded in iter_encoded(
                        rows["values"], rows["keys"], rows["headers"], rows.get("timestamps_ms")
                    ):
                        writer.append(destination, encoded)
            written = True
        finally:
            if not written:
                self._batches.abort([member.id])
        done = {self._key(tp): records.offsets[-1].as_py()}
        outcome = self._batches.commit(batch, [member.id], origins=done).outcome
        self._done |= done
        # Perhaps by our own request, whose answer was lost; perhaps by another run.
        if outcome is CommitOutcome.ALREADY_COMMITTED and self._ask_done() != self._done:
            raise self._concurrent()

    def _destinations(
        self, tp: TopicPartition, records: DecodedRecords, letters: Letters, mask: Mask
    ) -> Iterator[tuple[TopicPartition, Mapping[str, pa.Array]]]:
        """Yield the rows by destination: the partition of their origin if there still is one."""
        rows = {"values": records.values, "keys": records.keys, "headers": records.headers}
        kept = np.flatnonzero(~mask)
        if len(kept):
            yield tp, _taken(rows | {"timestamps_ms": records.timestamps_ms}, kept)
        rows["headers"] = without_reason(records.headers)
        topics = letters.topics.to_numpy(zero_copy_only=False)
        numbers = letters.partitions.fill_null(-1).to_numpy()
        for topic in letters.topics.filter(pa.array(mask)).unique().to_pylist():
            count = len(self._cluster.topic(topic).partitions)
            of_topic = mask & (topics == topic)
            by_key = partitions_for_keys(records.keys, count)
            places = np.where((numbers >= 0) & (numbers < count), numbers, by_key)
            for place in np.unique(places[of_topic]).tolist():
                chosen = np.flatnonzero(of_topic & (places == place))
                yield TopicPartition(topic, int(place)), _taken(rows, chosen)

    def _key(self, tp: TopicPartition) -> TopicPartition:
        """Return the key for origins; a topic that was created again is another source."""
        return TopicPartition(self._source, tp.partition)

    def _ask_done(self) -> dict[TopicPartition, int]:
        """Return the last offset done by source partition, also of earlier topics of the name."""
        joined = self._batches.join(0, timeout_ms=TIMEOUT_MS)
        if isinstance(joined, MicroBatchMember):
            self._batches.abort([joined.id])
        return dict(joined.origins)

    def _concurrent(self) -> ConcurrentReplayError:
        return ConcurrentReplayError(
            f"another run is sending letters of '{self._topic}' back; "
            "start this one again when the other has ended"
        )


def _letters(records: DecodedRecords) -> Letters:
    return read_letters(records.headers.cast(HEADERS_TYPE))


def _taken(rows: Mapping[str, pa.Array], chosen: npt.NDArray[np.intp]) -> dict[str, pa.Array]:
    places = pa.array(chosen)
    return {name: column.take(places) for name, column in rows.items()}
