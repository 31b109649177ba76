"""The columns that Spark is given for records of random schemas, read in random evolutions of them,
have the values that fastavro reads with writer's and reader's schema."""

import copy
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.errors import ConnectorError
from connector.options.source_options import parse_source_options
from connector.registries import close_registries
from connector.source.avro.avro_decoding import AvroDecoding
from connector.source.avro.avro_read import plan_avro
from connector.source.offset_range import OffsetRange
from connector.tests.source.avro.fetched_records import fetched
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.protocol.avro.framing import framed
from storage_engine.protocol.avro.resolve import Resolver
from storage_engine.tests.client.registry.small_registry import small_registry
from storage_engine.tests.protocol.avro.avro_evolutions import (
    Evolution,
    in_one,
    in_text,
    read_by_fastavro,
    without_logical,
)
from storage_engine.tests.protocol.avro.avro_samples import (
    bodies,
    encoded,
    parsed,
    plain_values,
    record_schemas,
    values,
)
from storage_engine.tests.sampling import examples


@pytest.fixture(scope="module")
def registry():
    with small_registry() as running:
        yield running
    close_registries()


_TAKEN = [0]


@settings(max_examples=examples(1_000))
@given(data=st.data())
def test_sparks_columns_have_the_values_that_fastavro_reads(registry, data):
    writer = without_logical(data.draw(record_schemas(most_fields=3, depth=2)))
    reader = Evolution(data.draw).record(copy.deepcopy(writer))
    written = parsed(writer)
    rows = data.draw(st.lists(values(written), min_size=1, max_size=4))
    records = [encoded(written, row) for row in rows]
    _TAKEN[0] += 1
    topic = f"t{_TAKEN[0]}"
    schema_id = registry.register(f"{topic}-value", json.dumps(writer))
    registry.register(f"{topic}-value", json.dumps(reader))
    given_options = {
        "bootstrap.servers": "h:1",
        "subscribe": topic,
        "value.format": "avro",
        "schema.registry.url": registry.url,
        "mode": "permissive",
    }
    try:
        read = plan_avro(parse_source_options(given_options), [topic], user_schema=None)
    except ConnectorError as error:
        # Spark has no column of no fields, and the like.
        assert "[BAD_SCHEMA]" in str(error)
        return
    one = fetched(framed(schema_id, bodies(records)).to_pylist())
    wanted = OffsetRange(
        topic_partition=one.tp, start_offset=0, end_offset=len(records), topic_id=None
    )
    found = pa.Table.from_batches(
        [batch for batches, _ in AvroDecoding(read).alone([one], wanted) for batch in batches]
    ).combine_chunks()
    try:
        Resolver(written, parsed(reader))
    except InvalidSchemaError:
        # Not one record can be read.
        assert None not in found["_error"].to_pylist()
        return
    expected = [read_by_fastavro(writer, reader, record) for record in records]
    assert [each is None for each in found["_error"].to_pylist()] == [
        each is not None for each in expected
    ]
    assert found.schema.names == [*(field["name"] for field in reader["fields"]), "_error"]
    assert [field.name for field in read.spark_schema()] == found.schema.names
    for field in found.schema.remove(len(reader["fields"])):
        column = plain_values(found[field.name].combine_chunks())
        assert [in_one(each, field.type) for each in column] == [
            None if row is None else in_text(row[field.name]) for row in expected
        ]
