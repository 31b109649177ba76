"""A batch of records: its size is counted before it is encoded (R-CLI7)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.client.changed import Changed
from storage_engine.client.producer.accumulator import Accumulator
from storage_engine.client.producer.producer_batch import record_bytes
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.sampling import examples


@settings(deadline=None, max_examples=examples(50))
@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=300),
            st.none() | st.binary(max_size=300),
            st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20))),
            st.integers(0, 2**50),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_batch_takes_no_more_than_its_records_were_counted_for(rows):
    accumulator = Accumulator(Changed(), batch_bytes=1 << 30, linger_ms=0)
    for key, value, headers, timestamp_ms in rows:
        size = record_bytes(key, value, headers)
        batch, _ = accumulator.room_for(TopicPartition("t", 0), size, 0)
        batch.records.append((key, value, headers, timestamp_ms))
        batch.size += size
    encoded = batch.encode("none")
    assert encoded.record_count == len(rows)
    assert len(encoded) <= batch.size
