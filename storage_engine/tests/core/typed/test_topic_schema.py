"""Versions of a topic's schema: what may change, what is refused and why, and how it is stored."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import ConfigError, KafkaError
from storage_engine.core.typed.column_types import (
    ArrayColumn,
    ColumnSpec,
    FloatColumn,
    IntegerColumn,
    StringColumn,
)
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import (
    MAX_VERSIONS,
    TopicSchema,
    UnknownSchemaVersionError,
    new_schema,
    schema_of,
    usual_form,
)
from storage_engine.tests.core.typed.schema_strategies import columns
from storage_engine.tests.sampling import examples

TRIPS = "id BIGINT NOT NULL, at TIMESTAMP, fare FLOAT, n INT NOT NULL, tags ARRAY<INT>"


def trips(key=("id",)):
    return new_schema(parse_ddl(TRIPS), key)


def names_of(version):
    return [(column.column_id, column.name) for column in version.visible]


def test_a_version_adds_widens_and_hides_columns_by_their_names():
    schema = trips()
    evolved = schema.evolved(
        parse_ddl("FARE DOUBLE, note STRING, tags ARRAY<BIGINT>, n INT NOT NULL, id BIGINT")
    )
    assert names_of(evolved.latest) == [
        (1, "id"),
        (3, "fare"),
        (4, "n"),
        (5, "tags"),
        (6, "note"),
    ]
    assert evolved.latest.column("Fare").type == FloatColumn(64)
    assert evolved.latest.column("tags").type == ArrayColumn(IntegerColumn(64))
    hidden = evolved.latest.by_id[2]
    assert (hidden.hidden, hidden.nullable) == (True, True)
    assert evolved.versions[0] == schema.latest, "what was written stays readable"
    assert evolved.key_columns(evolved.latest)[0].nullable is False


def test_the_same_columns_are_no_new_version_and_a_hidden_one_may_be_shown_again():
    schema = trips()
    assert schema.evolved(parse_ddl(TRIPS)) is schema
    without = schema.evolved(parse_ddl("id BIGINT, fare FLOAT, n INT NOT NULL"))
    again = without.evolved(parse_ddl("id BIGINT, at TIMESTAMP, fare FLOAT, n INT NOT NULL"))
    assert names_of(again.latest) == [(1, "id"), (2, "at"), (3, "fare"), (4, "n")]
    assert len(again.versions) == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("id INT, n INT NOT NULL", "column 'id' belongs to the key, and can't be hidden, widened"),
        ("fare FLOAT", "column 'id' belongs to the key"),
        (
            "id BIGINT, fare STRING",
            "column 'fare' can't change from FLOAT to STRING: whole numbers",
        ),
        ("id BIGINT, n BIGINT", "column 'n' is NOT NULL and can't become nullable"),
        ("id BIGINT, at TIMESTAMP NOT NULL", "it can't become NOT NULL"),
        ("id BIGINT, new INT NOT NULL", "column 'new' is new and NOT NULL, but earlier rows don't"),
        ("id BIGINT, tags ARRAY<STRING>", "column 'tags.element' can't change from INT to STRING"),
        ("id BIGINT, tags ARRAY<INT NOT NULL>", "ARRAY<INT> to ARRAY<INT NOT NULL>"),
        ("id BIGINT, _Offset INT", "_Offset': _topic, _partition"),
        ("id BIGINT, x INT, X INT", "columns 'x' and 'X' have one name"),
    ],
)
def test_a_change_that_rows_would_not_outlive_is_refused_with_its_reason(change, reason):
    with pytest.raises(ConfigError) as caught:
        trips().evolved(parse_ddl(change))
    assert reason in str(caught.value)


def test_names_of_other_programs_are_columns():
    """MongoDB and Debezium have them; two names are one only where Spark takes them for one."""
    names = ["_id", "__deleted", "_offset_", "_", "maße", "masse", "ﬁ", "fi"]
    schema = new_schema([ColumnSpec(name, IntegerColumn(32)) for name in names], ["_ID"])
    assert [name for _, name in names_of(schema.latest)] == names
    assert [schema.latest.column(name.upper()).name for name in ("_id", "__deleted")] == names[:2]
    with pytest.raises(ConfigError, match="'MASSE' have one name"):
        new_schema([ColumnSpec(name, IntegerColumn(32)) for name in ("masse", "MASSE")])


def test_all_columns_can_not_be_hidden():
    with pytest.raises(ConfigError, match="all columns of the topic would be hidden"):
        trips(key=()).evolved([ColumnSpec("n", IntegerColumn(32), hidden=True)])


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("id BIGINT, who STRUCT<a: INT>", ["who"], "column 'who' is STRUCT<a: INT>, which can't"),
        ("id DOUBLE", ["id"], "can't belong to a key"),
        ("id BIGINT, fare DATE", ["fair"], "there is no column 'fair', did you mean 'fare'?"),
        ("id BIGINT", ["id", "ID"], "the key names a column twice"),
        ("_offset BIGINT", [], "tell where a row comes from"),
        ("`" + "x" * 300 + "` INT", [], "has 300 characters"),
    ],
)
def test_a_schema_that_can_not_be_is_refused(text, key, reason):
    with pytest.raises(ConfigError) as caught:
        new_schema(parse_ddl(text), key)
    assert reason in str(caught.value)


def test_columns_of_the_key_become_not_null_and_keep_their_order():
    schema = new_schema(parse_ddl("a INT, b STRING, c DATE"), ["c", "A"])
    assert schema.key == (3, 1)
    assert [column.nullable for column in schema.latest.columns] == [False, True, False]


def test_an_unknown_column_is_told_with_the_nearest_and_an_unknown_version_may_come():
    schema = trips()
    with pytest.raises(ConfigError, match="there is no column 'fair', did you mean 'fare'"):
        schema.latest.column("fair")
    for number in (0, 2, -1, 2**31):
        with pytest.raises(UnknownSchemaVersionError) as caught:
            schema.version(number)
        assert caught.value.retriable
    assert isinstance(caught.value, KafkaError)


# ---- stored ----


@settings(max_examples=examples(150), deadline=None)
@given(columns, st.lists(st.integers(0, 2**32), max_size=3))
def test_every_history_is_read_as_it_was_written(specs, seeds):
    schema = new_schema(specs)
    for number, seed in enumerate(seeds):
        kept = [spec for place, spec in enumerate(specs) if seed >> place & 1 and spec.nullable]
        added = ColumnSpec(f"added {number}", IntegerColumn(8 << number % 3))
        specs = [*kept, *(spec for spec in specs if not spec.nullable), added]
        schema = schema.evolved(specs)
    text = schema.to_json()
    read = TopicSchema.from_json(text)
    assert read == schema
    assert usual_form(json.dumps(json.loads(text), indent=1)) == text
    schema.check_successor(read)


def test_a_later_version_costs_what_changes_in_it():
    schema = trips()
    evolved = schema.evolved(parse_ddl(TRIPS + ", note STRING"))
    news = json.loads(evolved.to_json())["versions"][1]["columns"]
    assert news == [{"id": 6, "name": "note", "type": "STRING"}]


def test_only_appended_versions_are_a_successor():
    schema = trips()
    evolved = schema.evolved(parse_ddl(TRIPS + ", note STRING"))
    schema.check_successor(evolved)
    with pytest.raises(ConfigError, match="2 versions, and 1 were given: versions are never"):
        evolved.check_successor(schema)
    other = schema.evolved(parse_ddl(TRIPS + ", remark STRING"))
    with pytest.raises(ConfigError, match="version 2 is not as the topic's schema has it"):
        evolved.check_successor(other)
    with pytest.raises(ConfigError, match="the key of a typed topic can't be changed"):
        schema.check_successor(trips(key=()))


ONE = '{"id":1,"name":"id","type":"INT"}'


def stored(columns=ONE, key="[]", versions=None, more=""):
    versions = versions or f'[{{"version":1,"columns":[{columns}]}}]'
    return f'{{"format":1,"key":{key},"versions":{versions}{more}}}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the schema is no JSON"),
        ("[]", "the schema must be a JSON object, and is a list"),
        ("{}", "the schema's format is null: this version of Headrace reads 1"),
        ('{"format":2}', "the schema's format is 2"),
        (stored(more=',"x":1'), "has a field 'x', which is none of format, key, versions"),
        (stored(key="[2]"), "the key names column id 2, which version 1 does not have"),
        (stored(key="[1]"), "column 'id' belongs to the key: make it NOT NULL"),
        (stored(key="[true]"), "must be a whole number, and is true"),
        (stored(ONE + "," + ONE), "column id 1 stands twice in one version"),
        (stored('{"id":0,"name":"a","type":"INT"}'), "is 0: ids go from 1 to 2147483647"),
        (stored('{"id":1' + "0" * 4000 + ',"name":"a","type":"INT"}'), "is a very large number"),
        (stored('{"id":1,"name":"a","type":"INT","hidden":true}'), "is hidden from the beginning"),
        (stored('{"id":1,"name":"a","type":"FOO"}'), "the type of column a can't be read"),
        (stored('{"id":1,"name":"a\\u0000","type":"INT"}'), "characters that can't be shown"),
        (stored('{"id":1,"name":"\\ud800","type":"INT"}'), "characters that can't be shown"),
        (stored('{"id":1,"name":"a","type":5}'), "must be a string, and is 5"),
        (stored('{"id":1,"name":"a","type":"INT","nullable":"no"}'), "must be true or false"),
        (stored('{"id":2,"name":"b","type":"INT"},' + ONE), "ids of new columns go up from 3"),
        (
            stored(versions=f'[{{"version":1,"columns":[{ONE}]}},{{"version":3,"columns":[]}}]'),
            "has the number 3: versions are numbered 1, 2, 3",
        ),
        (
            stored(versions=f'[{{"version":1,"columns":[{ONE}]}},{{"version":2,"columns":[]}}]'),
            "version 2 of the schema changes nothing",
        ),
        (
            stored(
                versions=f'[{{"version":1,"columns":[{ONE}]}},{{"version":2,"columns":[{ONE}]}}]'
            ),
            "column 'id' does not change",
        ),
        ("[" * 100_000, "nested too deep"),
        ('"' + "x" * 300_000 + '"', "more than 256 KiB"),
    ],
)
def test_a_stored_text_that_is_no_schema_is_refused_in_one_line(text, reason):
    with pytest.raises(ConfigError) as caught:
        TopicSchema.from_json(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_versions_are_bounded_and_a_schema_with_the_most_is_read():
    columns = '{"version":1,"columns":[' + ONE + "]}"
    more = ",".join(
        f'{{"version":{n},"columns":[{{"id":{n},"name":"c{n}","type":"INT"}}]}}'
        for n in range(2, MAX_VERSIONS + 1)
    )
    text = stored(versions=f"[{columns},{more}]")
    schema = schema_of(text)
    assert len(schema.versions) == MAX_VERSIONS
    with pytest.raises(ConfigError, match="at most 500 versions"):
        schema.evolved(
            [
                *(ColumnSpec(c.name, c.type) for c in schema.latest.columns),
                ColumnSpec("z", StringColumn()),
            ]
        )
