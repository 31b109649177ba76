"""Records one by one, as their columns say."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.client.consumer.consumer_record import rows_of
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE

B = TopicPartition("b", 1)

CELLS = st.lists(st.one_of(st.none(), st.binary(max_size=5)), min_size=1, max_size=8)

HEADERS = st.lists(st.tuples(st.text(max_size=2), st.one_of(st.none(), st.binary(max_size=3))))


@settings(max_examples=20, deadline=None)
@given(CELLS, st.data())
def test_rows_are_what_the_columns_say(values, data):
    keys = data.draw(
        st.lists(CELLS.map(lambda c: c[0]), min_size=len(values), max_size=len(values))
    )
    headers = data.draw(st.lists(HEADERS, min_size=len(values), max_size=len(values)))
    rows = [[{"key": k, "value": v} for k, v in row] for row in headers]
    batches = encode_batches(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        pa.array(rows, HEADERS_TYPE),
        now_ms=7,
    )
    decoded = decode_batches([bytes(b.data) for b in batches], include_headers=True)
    made = rows_of(B, decoded)
    assert [(r.key, r.value, list(r.headers)) for r in made] == [
        (k, v, h) for k, v, h in zip(keys, values, headers, strict=True)
    ]
    assert {(r.topic, r.partition, r.timestamp_ms, r.timestamp_type) for r in made} == {
        ("b", 1, 7, 0)
    }
    assert [r.offset for r in made] == list(range(len(values)))
