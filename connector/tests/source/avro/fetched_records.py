"""Records as a fetch brings them."""

import pyarrow as pa

from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import patch
from storage_engine.protocol.records.record_encoder import iter_encoded

T0 = TopicPartition("t", 0)


def fetched(values, keys=None, *, tp=T0, start=0):
    (batch,) = iter_encoded(
        pa.array(values, pa.binary()), None if keys is None else pa.array(keys, pa.binary()), None
    )
    data = bytearray(batch.data)
    patch(data, 0, base_offset=0, leader_epoch=0)
    end = len(values)
    return FetchedBatches(tp, memoryview(bytes(data)), start, end, end, end, 0, ())
