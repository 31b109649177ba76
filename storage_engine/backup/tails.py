"""Copies the tails of logs: of what lies behind their bodies, what belongs to the moment."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from typing import IO

from storage_engine.backup.batch_files import BatchFiles
from storage_engine.backup.cut import BackupMoment, TailChoice, first_beyond
from storage_engine.backup.log_copy import TAIL_SUFFIX, LogCopy
from storage_engine.backup.reading import Throttle, between, read_batches
from storage_engine.client.cluster import Cluster
from storage_engine.core.groups.records import OffsetKey, OffsetRecord
from storage_engine.core.ids import TopicPartition, topic_id_to_text
from storage_engine.protocol.records.record_batch import (
    BatchHeader,
    empty_batch,
    iter_headers,
    read_header,
)
from storage_engine.protocol.state.group_records import FIELDS, decode_record
from storage_engine.protocol.state.state_batches import read_records

GROUPS_TOPIC = "__consumer_offsets"

_ORIGIN = "id:"
"""A sink names the topics of its origins by their ids (docs/sink-protocol.md)."""

_MEMORY_BYTES = 4 << 20
"""A longer tail is kept in a temporary file until it is known what of it belongs to the moment."""


class Tails:
    """The tails of one cut."""

    def __init__(self, cluster: Cluster, moment: BackupMoment, throttle: Throttle) -> None:
        self._cluster = cluster
        self._moment = moment
        self._throttle = throttle
        self._late = frozenset(moment.late())
        self._dropped: dict[TopicPartition, int] = {}
        """The first offset that was left out because it was decided too late."""
        self._committed: list[tuple[TopicPartition, int]] = []
        """The offsets that transactions of the moment have committed for groups."""

    def copy(self, logs: Sequence[LogCopy]) -> None:
        """Copy the tails of some partitions. Their log start may have moved: nothing is missing
        then, for what is deleted is not restored."""
        ends = self._moment.tail_ends
        ranges = {log.tp: (log.position, ends[log.tp]) for log in logs}
        with ExitStack() as stack:
            spools: dict[TopicPartition, IO[bytes]] = {
                log.tp: stack.enter_context(tempfile.SpooledTemporaryFile(_MEMORY_BYTES))
                for log in logs
            }
            choices = {
                log.tp: TailChoice(log.tp, self._moment, log.tp.topic != GROUPS_TOPIC)
                for log in logs
            }
            for tp, records in read_batches(
                self._cluster,
                ranges,
                {log.tp.topic: log.topic_id for log in logs},
                throttle=self._throttle,
                on_start_moved=lambda tp, start: None,
            ):
                for header, batch in between(records, *ranges[tp]):
                    choices[tp].note(header)
                    spools[tp].write(batch)
            for log in logs:
                self._choose(log, choices[log.tp], spools[log.tp])

    def _choose(self, log: LogCopy, choice: TailChoice, spool: IO[bytes]) -> None:
        log.end_offset = self._moment.tail_ends[log.tp]
        spool.seek(0)
        content = memoryview(spool.read())
        files = BatchFiles(
            log.store, log.folder, suffix=log.suffix + TAIL_SUFFIX, file_bytes=len(content) + 1
        )
        try:
            for position, header in iter_headers(content):
                batch = content[position : position + header.size_in_bytes]
                if choice.keeps(header):
                    files.append(header, batch)
                    log.epoch = max(log.epoch, header.partition_leader_epoch)
                    self._note_kept(header, batch, log)
                else:
                    self._note_dropped(header, log)
            _fill(files, log, self._moment.tail_ends[log.tp])
            files.end_file()
        except BaseException:
            files.abandon()
            raise
        log.tail = files.files[0] if files.files else None

    def _note_kept(self, header: BatchHeader, batch: memoryview, log: LogCopy) -> None:
        if log.tp.topic != GROUPS_TOPIC or header.is_control:
            return
        for _, key, record in read_records(batch, FIELDS, decode_record, []):
            if isinstance(key, OffsetKey) and isinstance(record, OffsetRecord):
                self._committed.append((key.partition, record.offset))

    def _note_dropped(self, header: BatchHeader, log: LogCopy) -> None:
        if header.producer_id in self._late and not header.is_control:
            self._dropped.setdefault(log.tp, header.base_offset)

    def beyond(self, logs: Sequence[LogCopy]) -> TopicPartition | None:
        """A partition of which somebody of the moment has read what does not belong to it; None
        where there is none. Then the cut is made again."""
        by_id = {
            TopicPartition(_ORIGIN + topic_id_to_text(log.topic_id), log.tp.partition): log.tp
            for log in logs
        }
        origins = [
            (by_id[source], offset)
            for source, offset in self._moment.origins.items()
            if source in by_id
        ]
        return first_beyond([*self._committed, *origins], self._dropped)


def _fill(files: BatchFiles, log: LogCopy, end: int) -> None:
    """End the log where its tail ends, by a batch without records, as compaction leaves them: who
    reads up to the end would wait for an offset that never comes."""
    begin = max(log.position, files.next_offset)
    if begin >= end:
        return
    batch = memoryview(empty_batch(base_offset=begin, next_offset=end, leader_epoch=log.epoch))
    files.append(read_header(batch), batch)
