"""A typed batch of one log as a batch for another topic with the same schema, for the mirror.

Columns are copied byte for byte; only the directory is written anew. A batch with gaps loses its
column of offset deltas, one of LogAppendTime gets its time as the base timestamp. Columns are
decoded only where a batch begins before the wanted offset. Source: R-CLI6.
"""

from typing import NamedTuple
from uuid import UUID

import numpy as np

from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.protocol.records.control_record import DELETE_HORIZON_BIT
from storage_engine.protocol.records.record_batch import TYPED_BIT, BatchHeader
from storage_engine.protocol.records.varints import Ints
from storage_engine.protocol.typed.directory import OFFSETS, TIMESTAMPS
from storage_engine.protocol.typed.kept_rows import OpenTypedBatch, Replacements


class TypedTarget(NamedTuple):
    """The topic that typed batches are copied into."""

    topic_id: UUID
    schema: TopicSchema
    """The source's, as far as the target has the same versions."""


def copied_rows(
    batch: memoryview, header: BatchHeader, *, start_offset: int, target: TypedTarget
) -> tuple[bytearray, Ints]:
    """Return the rows of the batch from `start_offset` on as a batch for the target, its rows
    without gaps, and the offsets that they have in the source.

    CorruptRecordError for a damaged batch, UnknownSchemaVersionError for one of a later version.
    """
    opened = OpenTypedBatch(header, batch, target.schema)
    offsets = opened.offsets
    chosen = np.flatnonzero(offsets >= start_offset)
    rows = None if len(chosen) == len(offsets) else chosen
    replaced: dict[int, None] = {OFFSETS: None}
    fresh = header._replace(attributes=TYPED_BIT, last_offset_delta=len(chosen) - 1)
    if header.timestamp_type == 1:
        replaced[TIMESTAMPS] = None
        fresh = fresh._replace(base_timestamp=header.max_timestamp)
    elif rows is not None or header.attributes & DELETE_HORIZON_BIT:
        times = opened.timestamps_ms[chosen]
        fresh = fresh._replace(base_timestamp=int(times[0]), max_timestamp=int(times.max()))
    wanted: Replacements = replaced
    return opened.with_rows(fresh, rows, wanted, target.topic_id), offsets[chosen]
