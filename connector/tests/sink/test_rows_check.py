"""Whether rows are records or have the columns of a typed topic is decided where a writer is
made."""

import pickle
from uuid import UUID

import pytest
from pyspark.sql.types import StructField, StructType

from connector.errors import OptionError
from connector.options.sink_options import parse_sink_options
from connector.sink.typed import rows_check
from connector.sink.typed.rows_check import check_rows
from connector.tests.options.parsed import one_line
from connector.typed_columns import spark_type
from storage_engine.client.admin import topics as admin_topics
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.typed.ddl import parse_ddl, render_ddl
from storage_engine.core.typed.topic_schema import TopicSchema, new_schema

TRIPS = "id BIGINT NOT NULL, fare DOUBLE"


def _schema(ddl):
    columns = parse_ddl(ddl)
    return StructType([StructField(each.name, spark_type(each.type)) for each in columns])


class Brokers:
    """Brokers that know one topic, or none."""

    def __init__(self, monkeypatch, ddl=None, *, exists=True):
        self.exists = exists
        self.known = None if ddl is None else self._typed(new_schema(parse_ddl(ddl), ("id",)))
        self.remembered = self.known
        self.made = []
        monkeypatch.setattr(rows_check, "_look_up", lambda options, topic: self.look_up())
        monkeypatch.setattr(rows_check, "_look_again", lambda options, topic: self.known)
        monkeypatch.setattr(rows_check, "cluster_for", lambda options: None)
        monkeypatch.setattr(admin_topics, "create_topic", self.create)

    def look_up(self):
        return self.exists, self.remembered

    def create(self, cluster, topic, partitions, replication_factor, configs):
        self.made.append((topic, partitions, replication_factor))
        if self.known is not None:
            raise KafkaError("it is there", ErrorCode.TOPIC_ALREADY_EXISTS)
        self.known = self._typed(TopicSchema.from_json(configs["headrace.schema"]))

    def _typed(self, schema):
        return KnownSchema(UUID(int=1), schema)


def _check(ddl, **options):
    named = {name.replace("__", "."): text for name, text in options.items()}
    given = {"bootstrap.servers": "h:1", "topic": "trips", **named}
    return check_rows(_schema(ddl), parse_sink_options(given))


def test_the_topic_says_whether_rows_are_records(monkeypatch):
    Brokers(monkeypatch)
    assert _check("key STRING, value STRING") is None
    Brokers(monkeypatch, TRIPS)
    sink = pickle.loads(pickle.dumps(_check("ID INT, fare DOUBLE")))
    assert (sink.topic, sink.topic_id, sink.version.version) == ("trips", UUID(int=1), 1)
    assert [column.name for column in sink.required] == ["id"]


def test_without_a_topic_rows_are_records(monkeypatch):
    Brokers(monkeypatch, TRIPS)
    options = parse_sink_options({"bootstrap.servers": "h:1"})
    assert check_rows(_schema("topic STRING, value STRING"), options) is None


def test_what_is_remembered_of_a_topic_refuses_no_rows(monkeypatch):
    brokers = Brokers(monkeypatch, TRIPS)
    brokers.known = KnownSchema(
        UUID(int=1), brokers.known.schema.evolved(parse_ddl(f"{TRIPS}, tip INT"))
    )
    assert _check("id BIGINT, tip INT").version.version == 2
    brokers.remembered = None
    assert _check("id BIGINT, fare DOUBLE").version.version == 2
    with pytest.raises(OptionError, match="has no column 'tipp'; did you mean 'tip'"):
        _check("id BIGINT, tipp INT")


def test_a_topic_is_made_of_the_rows_columns(monkeypatch):
    brokers = Brokers(monkeypatch, exists=False)
    sink = _check(
        "t STRING, p INT, o BIGINT, id BIGINT, tags ARRAY<STRING>, _partition INT",
        createTopic="true",
        topic__key="ID",
        topic__partitions="3",
        sinkId="s",
        idempotentKey="t,p,o",
    )
    assert brokers.made == [("trips", 3, -1)]
    assert render_ddl(sink.version.columns) == "id BIGINT NOT NULL, tags ARRAY<STRING>"
    assert sink.schema.key == (1,)


def test_a_topic_that_another_driver_has_just_made_is_taken(monkeypatch):
    brokers = Brokers(monkeypatch, TRIPS)
    brokers.exists, brokers.remembered = False, None
    assert _check("id BIGINT", createTopic="true").topic_id == UUID(int=1)


@pytest.mark.parametrize(
    ("ddl", "exists", "rows", "options", "message"),
    [
        (None, False, "id BIGINT", {}, "with createTopic=true it is made with the columns of the"),
        (None, True, "id BIGINT", {"createTopic": "true"}, "'trips' exists already, without a sch"),
        (
            TRIPS,
            True,
            "id BIGINT",
            {"createTopic": "true", "topic.key": "fare"},
            "'topic.key' is fare, and the topic 'trips' exists with the key id",
        ),
        (None, False, "id DOUBLE", {"createTopic": "true", "topic.key": "id"}, "can't be made of"),
        (None, False, "id INT", {"createTopic": "true", "topic.key": "ip"}, "can't be made of the"),
        (TRIPS, True, "id BIGINT", {"compression.type": "gzip"}, "can be none, lz4, zstd: set one"),
        (TRIPS, True, "id BIGINT, ID BIGINT", {}, "two columns to be written have the same name"),
        (TRIPS, True, "value STRING", {}, "is typed and has no column 'value'; it has id, fare"),
    ],
)
def test_what_can_not_be_written_is_one_line(monkeypatch, ddl, exists, rows, options, message):
    Brokers(monkeypatch, ddl, exists=exists)
    columns = [field for each in rows.split(", ") for field in _schema(each).fields]
    given = {"bootstrap.servers": "h:1", "topic": "trips", **options}
    with one_line(message):
        check_rows(StructType(columns), parse_sink_options(given))
