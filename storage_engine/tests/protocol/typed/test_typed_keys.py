"""The key of a row as a record's key."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.typed.column_types import StringColumn
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import ColumnSpec, new_schema
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.protocol.typed.typed_keys import key_bytes
from storage_engine.tests.protocol.typed.json_support import as_json, typed
from storage_engine.tests.protocol.typed.logs import decoded, encoded, log_of, table_of
from storage_engine.tests.protocol.typed.typed_values import rows_of
from storage_engine.tests.sampling import examples

KEY_TYPES = ["BOOLEAN", "TINYINT", "BIGINT", "DECIMAL(12,3)", "STRING", "BINARY", "DATE"]
KEY_TYPES += ["TIMESTAMP", "TIMESTAMP_NTZ"]


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), types=st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=3))
def test_tombstones_and_keys_survive_the_way_through_json(data, types):
    names = [f"k{n}" for n in range(len(types))]
    specs = parse_ddl(", ".join(f"{n} {t} NOT NULL" for n, t in zip(names, types, strict=True)))
    schema = new_schema([*specs, ColumnSpec("v", StringColumn(), False)], names[::-1])
    rows = data.draw(rows_of(schema, 4))
    gone = data.draw(st.lists(st.booleans(), min_size=4, max_size=4))
    log = log_of(encoded(rows, schema, tombstones=pa.array(gone)))
    plain = as_json(log, schema)
    records = decode_batches([plain])
    assert [value is None for value in records.values.to_pylist()] == gone
    assert records.keys.equals(key_bytes(rows, schema, schema.latest))
    back = typed(plain, schema)
    read_plan = plan(schema, metadata=["_deleted"])
    assert table_of(decoded(back, schema, read_plan), read_plan).equals(
        table_of(decoded(log, schema, read_plan), read_plan)
    )
