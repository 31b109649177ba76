"""Avro with a schema registry through Spark: columns are read as Confluent's serializers wrote
them, written so that these read them, and a running stream keeps its columns. Single values are in
`integration_tests/connector/test_avro_columns.py`, faults in `integration_tests/exactly_once`.
Source: docs/spark.md, Avro with a schema registry."""

import copy
import json
import random
import uuid

import pytest
from chispa import assert_df_equality
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types

from connector import with_dead_letters
from integration_tests.registry.registries import RegistryUnderFire
from integration_tests.support.cluster_support import create_topic, wait_until
from integration_tests.support.random_frames import random_frame
from integration_tests.support.spark_support import consume, produce
from storage_engine.protocol.dead_letter_headers import OFFSET, REASON
from storage_engine.tests.client.registry.small_registry import small_registry
from storage_engine.tests.protocol.avro.avro_evolutions import (
    Evolution,
    in_one,
    in_text,
    read_by_fastavro,
    without_logical,
)
from storage_engine.tests.protocol.avro.avro_samples import (
    encoded,
    parsed,
    plain_values,
    record_schemas,
    values,
)
from storage_engine.tests.sampling import ALL_FAULTS, SEED

FRAMES = 20 if ALL_FAULTS else 2
EVOLUTIONS = 30 if ALL_FAULTS else 3
ID = {"name": "id", "type": "long"}
FARE = {"name": "fare", "type": ["null", "double"], "default": None}
TIP = {"name": "tip", "type": "int", "default": 7}


def _schema(*fields):
    return json.dumps({"type": "record", "name": "Ride", "fields": fields})


@pytest.fixture
def registry():
    with small_registry() as running:
        yield running


@pytest.fixture
def avro(registry):
    return {"value.format": "avro", "schema.registry.url": registry.url}


def _produce(registry, servers, topic, schema, rows):
    serializer = AvroSerializer(SchemaRegistryClient({"url": registry.url}), schema)
    context = SerializationContext(topic, MessageField.VALUE)
    produce(servers, topic, [{"value": serializer(row, context)} for row in rows])


def _read(spark, servers, topic, options):
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).options(**options).load()


def _stream(spark, servers, topic, options):
    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    return reader.options(**options).load()


def _write(frame, servers, options):
    writer = frame.write.format("headrace").mode("append")
    writer.option("kafka.bootstrap.servers", servers).options(**options).save()


def _is_avros(kind):
    """Whether Avro has a type for it: it has neither intervals nor maps by other than strings."""
    text = kind.simpleString()
    return "interval" not in text and text.count("map<") == text.count("map<string,")


def _as_avro_has_it(kind):
    """The type without tiny integers, and with names that Avro allows."""
    match kind:
        case types.ByteType() | types.ShortType():
            return types.IntegerType()
        case types.ArrayType():
            return types.ArrayType(_as_avro_has_it(kind.elementType))
        case types.MapType():
            return types.MapType(kind.keyType, _as_avro_has_it(kind.valueType))
        case types.StructType():
            return types.StructType(
                [
                    types.StructField(f"f{place}", _as_avro_has_it(each.dataType))
                    for place, each in enumerate(kind)
                ]
            )
    return kind


@pytest.mark.parametrize("number", range(FRAMES))
def test_frames_of_any_types_are_read_back_as_they_were_written(
    spark, spark_cluster, servers, topic, avro, number
):
    create_topic(spark_cluster, topic, partitions=2)
    chance = random.Random(SEED * 1000 + number)
    frame = random_frame(spark, chance, columns=20, rows=chance.choice([1, 100, 300]))
    frame = frame.select(
        *[
            F.col(f"`{each.name}`").cast(_as_avro_has_it(each.dataType)).alias(f"c{place}")
            for place, each in enumerate(frame.schema)
            if _is_avros(each.dataType)
        ]
    )
    _write(frame, servers, {"topic": topic, **avro})
    read = _read(spark, servers, topic, avro)
    assert_df_equality(read.orderBy("c0"), frame.orderBy("c0"), ignore_nullable=True)


def test_what_others_write_is_copied_and_read_by_others(
    spark, spark_cluster, servers, topic, registry, avro, tmp_path
):
    target = f"{topic}-copy"
    for name in (topic, target):
        create_topic(spark_cluster, name, partitions=2)
    rows = [{"id": number, "fare": None if number % 3 else number / 2} for number in range(500)]
    _produce(registry, servers, topic, _schema(ID, FARE), rows)
    query = (
        _stream(spark, servers, topic, {**avro, "columns": "id,fare", "where": "id >= 100"})
        .withColumn("_key", F.col("id").cast("string"))
        .writeStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .options(topic=target, checkpointLocation=str(tmp_path / "checkpoint"), **avro)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    deserializer = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    context = SerializationContext(target, MessageField.VALUE)
    found = consume(servers, target)
    copied = [deserializer(each.value(), context) for each in found]
    assert sorted(copied, key=lambda row: row["id"]) == rows[100:]
    assert all(
        each.key() == str(row["id"]).encode() for each, row in zip(found, copied, strict=True)
    )


def _run(spark, servers, topic, options, folder):
    """What a query adds to the folder until it has read all."""
    query = (
        _stream(spark, servers, topic, options)
        .writeStream.format("parquet")
        .option("mergeSchema", "true")
        .options(path=str(folder / "rows"), checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.read.option("mergeSchema", "true").parquet(str(folder / "rows"))


def test_a_field_that_a_producer_adds(
    spark, spark_cluster, servers, topic, registry, avro, tmp_path
):
    create_topic(spark_cluster, topic, partitions=1)
    _produce(registry, servers, topic, _schema(ID, FARE), [{"id": 1, "fare": 1.0}])
    query = (
        _stream(spark, servers, topic, avro)
        .writeStream.format("memory")
        .queryName("in_memory")
        .option("checkpointLocation", str(tmp_path / "running"))
        .start()
    )
    try:
        query.processAllAvailable()
        rows = _run(spark, servers, topic, avro, tmp_path)
        assert rows.columns == ["id", "fare"]
        tipped = _schema(ID, FARE, {**TIP, "default": 0})
        _produce(registry, servers, topic, tipped, [{"id": 2, "fare": 2.0, "tip": 9}])
        query.processAllAvailable()
    finally:
        query.stop()
    # The running query keeps its columns.
    in_memory = spark.table("in_memory").orderBy("id").collect()
    # The session is that of all tests, and this view would hide a table of its name.
    assert spark.catalog.dropTempView("in_memory")
    assert [tuple(row) for row in in_memory] == [(1, 1.0), (2, 2.0)]
    with pytest.raises(
        PySparkException, match=r"\[SCHEMA_CHANGED\] .* in version 1 of the subject"
    ):
        _run(spark, servers, topic, avro, tmp_path)
    rows = _run(spark, servers, topic, {**avro, "value.schema.version": "1"}, tmp_path)
    assert [tuple(row) for row in rows.orderBy("id").collect()] == [(1, 1.0), (2, 2.0)]
    _produce(registry, servers, topic, _schema(ID, FARE), [{"id": 3, "fare": 3.0}])
    rows = _run(spark, servers, topic, {**avro, "value.schema.evolution": "restart"}, tmp_path)
    assert [tuple(row) for row in rows.select("id", "tip").orderBy("id").collect()] == [
        (1, None),
        (2, None),
        (3, 0),
    ]


@settings(
    max_examples=EVOLUTIONS,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_records_of_any_schema_are_read_in_any_other_as_fastavro_reads_them(
    spark, spark_cluster, servers, registry, avro, data
):
    """A sample through Spark; many more go through `connector/tests/source/avro`."""
    writer = without_logical(data.draw(record_schemas(most_fields=5, depth=2)))
    reader = Evolution(data.draw).record(copy.deepcopy(writer))
    written = parsed(writer)
    rows = data.draw(st.lists(values(written), min_size=1, max_size=5))
    records = [encoded(written, row) for row in rows]
    expected = [read_by_fastavro(writer, reader, record) for record in records]
    assume(any(expected))
    topic = f"t-{uuid.uuid4().hex[:12]}"
    create_topic(spark_cluster, topic, partitions=1)
    schema_id = registry.register(f"{topic}-value", json.dumps(writer))
    registry.register(f"{topic}-value", json.dumps(reader))
    framed = [b"\0" + schema_id.to_bytes(4, "big") + record for record in records]
    produce(servers, topic, [{"value": each} for each in framed])
    try:
        read = _read(spark, servers, topic, {**avro, "mode": "permissive"})
    except PySparkException as error:
        # Spark has no column of no fields.
        assert "[BAD_SCHEMA]" in str(error)
        reject()
    found = read.toArrow().combine_chunks()
    errors = found["_error"].to_pylist()
    assert [each is None for each in errors] == [each is not None for each in expected]
    assert found.schema.names == [*(field["name"] for field in reader["fields"]), "_error"]
    for field in found.schema.remove(len(reader["fields"])):
        column = plain_values(found[field.name].combine_chunks())
        assert [in_one(each, field.type) for each in column] == [
            None if row is None else in_text(row[field.name]) for row in expected
        ]


def test_a_stream_waits_for_a_registry_that_was_stopped_and_goes_on(
    spark, spark_cluster, servers, topic, tmp_path
):
    create_topic(spark_cluster, topic, partitions=1)
    registry = RegistryUnderFire(spark_cluster, tmp_path, f"_schemas-{topic}")
    options = {"value.format": "avro", "schema.registry.url": registry.url}
    try:
        registry.start()
        _produce(registry, servers, topic, _schema(ID, FARE), [{"id": 1, "fare": 1.0}])
        query = (
            _stream(spark, servers, topic, options)
            .writeStream.format("parquet")
            .options(path=str(tmp_path / "rows"), checkpointLocation=str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            query.processAllAvailable()
            serializer = AvroSerializer(
                SchemaRegistryClient({"url": registry.url}), _schema(ID, FARE, TIP)
            )
            context = SerializationContext(topic, MessageField.VALUE)
            later = serializer({"id": 2, "fare": 2.0, "tip": 9}, context)
            registry.kill()
            produce(servers, topic, [{"value": later}])
            wait_until(lambda: query.status["isTriggerActive"], "the query asks for the schema")
            assert _ids(spark, tmp_path) == [1]
            registry.start()
            query.processAllAvailable()
        finally:
            query.stop()
    finally:
        registry.kill()
    assert _ids(spark, tmp_path) == [1, 2]


def _ids(spark, folder):
    rows = spark.read.parquet(str(folder / "rows"))
    return sorted(row["id"] for row in rows.collect())


def test_records_that_cannot_be_decoded_become_letters_in_the_same_commit(
    spark, spark_cluster, servers, topic, registry, avro, tmp_path
):
    create_topic(spark_cluster, topic, partitions=1)
    for name in ("checked", "rejected"):
        create_topic(spark_cluster, f"{topic}-{name}", partitions=1)
    rows = [{"id": number, "fare": float(number - 5)} for number in range(10)]
    _produce(registry, servers, topic, _schema(ID, FARE), rows)
    produce(servers, topic, [{"value": b"plain", "key": b"k", "headers": [("h", b"1")]}])
    options = {**avro, "mode": "dead-letter"}
    why = F.coalesce("_error", F.when(F.col("fare") < 0, F.lit("negative")))
    letters = with_dead_letters(
        _stream(spark, servers, topic, options).withColumn("why", why),
        reason="why",
        topic=f"{topic}-rejected",
        accepted={"topic": F.lit(f"{topic}-checked"), "value": F.to_json(F.struct("id"))},
    )
    query = (
        letters.writeStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    accepted = [json.loads(each.value()) for each in consume(servers, f"{topic}-checked")]
    assert accepted == [{"id": number} for number in range(5, 10)]
    rejected = consume(servers, f"{topic}-rejected")
    came = {each.offset(): each for each in consume(servers, topic)}
    for letter in rejected:
        headers = dict(letter.headers())
        origin = came[int(headers[OFFSET])]
        assert (letter.key(), letter.value()) == (origin.key(), origin.value())
    (plain,) = [each for each in rejected if each.value() == b"plain"]
    headers = dict(plain.headers())
    assert headers["h"] == b"1"
    assert "begins with the byte 112" in bytes(headers[REASON]).decode()


def test_a_query_outlives_a_registry_that_is_away_and_ends_with_one_line_at_a_damaged_record(
    spark, spark_cluster, servers, topic, registry, avro
):
    create_topic(spark_cluster, topic, partitions=1)
    _produce(registry, servers, topic, _schema(ID, FARE), [{"id": 1, "fare": 1.0}])
    read = _read(spark, servers, topic, avro)
    _produce(registry, servers, topic, _schema(FARE, ID), [{"id": 2, "fare": 2.0}])
    registry.failures = [503] * 5
    again = _read(spark, servers, topic, {**avro, "value.schema.version": "1"})
    expected = spark.createDataFrame([(1, 1.0), (2, 2.0)], "id long, fare double")
    assert_df_equality(again.orderBy("id"), expected, ignore_nullable=True)
    assert registry.failures == []
    produce(servers, topic, [{"value": b"\0\0\0\0\x01\x02"}])
    with pytest.raises(PySparkException) as raised:
        _read(spark, servers, topic, {**avro, "value.schema.version": "1"}).collect()
    line = next(line for line in str(raised.value).splitlines() if "[BAD_RECORD]" in line)
    assert f"the record of {topic}-0 at offset 2 can't be decoded: value: schema id 1" in line
    assert read.columns == ["id", "fare"]
