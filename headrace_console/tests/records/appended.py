"""Records on a fake cluster."""

import pyarrow as pa

from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.client.fake_cluster import FakeCluster


def append(fake: FakeCluster, *values: bytes, topic: str = "t", partition: int = 0) -> None:
    """One batch with these values; its timestamp is the end offset before it."""
    log = fake.partition(topic, partition)
    (batch,) = encode_batches(
        pa.array(values, pa.binary()), timestamps_ms=pa.array([log.end_offset] * len(values))
    )
    log.append(bytes(batch.data))
