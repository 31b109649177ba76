"""Columns have the values that fastavro reads from the same bytes."""

from hypothesis import given
from hypothesis import strategies as st

from storage_engine.protocol.avro.decode import decode
from storage_engine.tests.protocol.avro.avro_samples import (
    bodies,
    encoded,
    in_columns,
    parsed,
    plain_values,
    read_by_fastavro,
    record_schemas,
    seeded,
    values,
)


@given(data=st.data())
def test_columns_have_the_values_that_fastavro_reads(data):
    schema = data.draw(record_schemas())
    tree = parsed(schema)
    rows = data.draw(st.lists(values(tree), min_size=1, max_size=6))
    random = seeded(data.draw(st.integers(0, 99)))
    records = [encoded(tree, row, random) for row in rows]
    found = decode(tree, bodies(records))
    assert found.damaged == ()
    found.batch.validate(full=True)
    read = [in_columns(tree, read_by_fastavro(schema, record)) for record in records]
    columns = {name: plain_values(found.batch.column(name)) for name in found.batch.schema.names}
    assert columns == {name: [row[name] for row in read] for name in columns}
    assert list(columns) == [field["name"] for field in schema["fields"]]
