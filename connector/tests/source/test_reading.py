"""Which topics have a schema is found out when a query begins, and looked at again for topics that
come later."""

import pickle
from uuid import UUID

import pytest

from connector.data_source import HeadraceDataSource
from connector.errors import OptionError
from connector.options.source_options import parse_source_options
from connector.source import reading
from connector.source.reading import Reading, TopicCheck
from connector.source.source_metadata import FoundPartitions, SourceMetadata
from connector.tests.options.parsed import one_line
from connector.typed_columns import spark_type
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema

find_reading = reading.find_reading
"""Before a fixture takes its place."""

OPTIONS = {"bootstrap.servers": "h:1", "subscribePattern": ".*"}
TRIPS = "id BIGINT, fare DOUBLE"


class Topics:
    """Topics by name, with the number of their id and their columns; None: without a schema."""

    def __init__(self, monkeypatch, **topics):
        self.topics = topics
        self.asked = []
        monkeypatch.setattr(reading, "known_schemas", self._known)
        monkeypatch.setattr(reading, "find_reading", find_reading)
        monkeypatch.setattr(SourceMetadata, "find_all", lambda metadata, wanted: self.found)

    @property
    def found(self):
        return FoundPartitions(
            partitions=tuple(TopicPartition(name, 0) for name in sorted(self.topics)),
            missing=(),
            topic_ids={name: UUID(int=number) for name, (number, _) in self.topics.items()},
        )

    def _known(self, options, topics, *, refresh):
        assert refresh
        self.asked += topics
        return {name: self._schema(*self.topics[name]) for name in topics}

    def _schema(self, number, ddl):
        return None if ddl is None else KnownSchema(UUID(int=number), new_schema(parse_ddl(ddl)))


def _reading(**options):
    return find_reading(parse_source_options(OPTIONS | options))


def test_a_data_source_carries_what_it_found_to_planner_and_tasks(monkeypatch):
    topics = Topics(monkeypatch, t=(1, TRIPS))
    source = HeadraceDataSource(OPTIONS | {"columns": "fare"})
    schema = source.schema()
    assert schema.simpleString() == "struct<fare:double>"
    topics.asked.clear()
    source = pickle.loads(pickle.dumps(source))
    for reader in (source.reader(schema), source.streamReader(schema)):
        carried = pickle.loads(pickle.dumps(reader))._reading
        assert [each.column for each in carried.typed.columns] == ["fare"]
    assert topics.asked == []


def test_where_the_user_gives_a_schema_the_reader_asks_and_checks_it(monkeypatch):
    Topics(monkeypatch, t=(1, TRIPS))
    source = HeadraceDataSource(OPTIONS)
    wanted = HeadraceDataSource(OPTIONS | {"columns": "id"}).schema()
    assert source.reader(wanted)._reading.typed.spark_schema() == wanted
    wanted["id"].dataType = spark_type(parse_ddl("id INT")[0].type)
    with pytest.raises(OptionError, match="'id' of the topic 't' is BIGINT, and int was asked for"):
        source.reader(wanted)


def test_a_condition_is_an_error_for_topics_without_a_schema(monkeypatch):
    Topics(monkeypatch, t=(1, None))
    with one_line("'where' needs a topic with a schema, and 't' has none"):
        _reading(where="id > 1")


def test_headers_of_a_typed_topic_are_named_among_its_columns(monkeypatch):
    Topics(monkeypatch, t=(1, TRIPS))
    with pytest.raises(OptionError, match="'t' has one: name _headers in 'columns'"):
        _reading(includeHeaders="true")
    assert _reading(columns="id,_headers").typed.spark_schema().names == ["id", "_headers"]


def _checks(monkeypatch, **topics):
    made = Topics(monkeypatch, **topics)
    check = TopicCheck(parse_source_options(OPTIONS), _reading())
    made.asked.clear()
    return made, check


def test_topics_are_asked_for_once_and_again_when_they_were_created_again(monkeypatch):
    topics, check = _checks(monkeypatch, a=(1, TRIPS))
    check.check(topics.found)
    topics.topics["b"] = (2, TRIPS)
    for _ in range(3):
        check.check(topics.found)
    assert topics.asked == ["b"]
    topics.topics["b"] = (3, TRIPS)
    check.check(topics.found)
    assert topics.asked == ["b", "b"]


@pytest.mark.parametrize(
    ("late", "message"),
    [
        (None, "'a' has a schema and 'b' has none"),
        ("id BIGINT", "'a' and 'b' can't be read together, because 'b' has no column 'fare'"),
        ("id INT, fare DOUBLE", "the column 'id' is INT in 'b' and BIGINT in 'a'"),
    ],
)
def test_a_topic_that_comes_later_and_does_not_fit_ends_the_query(monkeypatch, late, message):
    topics, check = _checks(monkeypatch, a=(1, TRIPS))
    topics.topics["b"] = (2, late)
    with one_line(message):
        check.check(topics.found)


def test_a_typed_topic_that_comes_later_ends_a_query_of_records(monkeypatch):
    topics, check = _checks(monkeypatch, a=(1, None))
    topics.topics["b"] = (2, TRIPS)
    with pytest.raises(OptionError, match="'b' has a schema and 'a' has none"):
        check.check(topics.found)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (None, TRIPS, "'a' was created again with a schema: start a new query"),
        (TRIPS, None, "'a' was created again without a schema: start a new query"),
        (TRIPS, "id BIGINT", "'a' has no column 'fare': load() again, the topic has changed"),
    ],
)
def test_a_topic_that_was_created_again_differently_is_another_query(
    monkeypatch, before, after, message
):
    topics, check = _checks(monkeypatch, a=(1, before))
    topics.topics["a"] = (2, after)
    with one_line(message):
        check.check(topics.found)


def test_readers_that_were_made_without_a_look_at_topics_read_records():
    assert Reading(typed=None).topics == {}
