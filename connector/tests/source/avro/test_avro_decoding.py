"""Fetched batches of records in Avro become rows with the columns of the query."""

import json
import time

import pyarrow as pa
import pytest

from connector.errors import ConnectorError, OptionError
from connector.options.source_options import parse_source_options
from connector.registries import close_registries
from connector.source.avro import record_decoder
from connector.source.avro.avro_decoding import AvroDecoding
from connector.source.avro.avro_read import check_same_schemas, plan_avro
from connector.source.offset_range import OffsetRange
from connector.tests.source.avro.fetched_records import T0, fetched
from storage_engine.client import schema_registry
from storage_engine.core.ids import TopicPartition
from storage_engine.core.schemas.avro.parse import parse_avro_schema
from storage_engine.protocol.avro.encode import encode
from storage_engine.protocol.avro.framing import framed
from storage_engine.tests.client.registry.small_registry import small_registry

T1 = TopicPartition("t", 1)


def _schema(*fields, name="R"):
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


ID = {"name": "id", "type": "long"}
FARE = {"name": "fare", "type": ["null", "float"], "default": None}
TAG = {"name": "tag", "type": "string", "default": "none"}
V1 = _schema(ID, FARE)
V2 = _schema(ID, {**FARE, "type": ["null", "double"]}, TAG)
KEY = json.dumps("string")


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setattr(schema_registry, "LAG_S", 0.0)
    with small_registry(first_id=300) as running:
        yield running
    close_registries()


def _records(registry, text, rows, subject="t-value"):
    """The values of records, as a serializer makes them."""
    schema_id = registry.register(subject, text)
    return framed(schema_id, encode(parse_avro_schema(text), rows)).to_pylist()


def _rows(first, count, **more):
    return pa.record_batch(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "fare": pa.array([None if n % 3 == 0 else n / 2 for n in range(count)], pa.float64()),
            **{name: pa.array([value] * count) for name, value in more.items()},
        }
    )


def _decoding(registry, **options):
    return AvroDecoding(_read(registry, **options))


def _read(registry, user_schema=None, **options):
    named = {name.replace("__", "."): text for name, text in options.items()}
    given = {
        "bootstrap.servers": "h:1",
        "subscribe": "t",
        "value.format": "avro",
        "schema.registry.url": registry.url,
    }
    return plan_avro(parse_source_options(given | named), ["t"], user_schema=user_schema)


def _alone(decoding, one):
    wanted = OffsetRange(
        topic_partition=one.tp,
        start_offset=one.start_offset,
        end_offset=one.next_offset,
        topic_id=None,
    )
    assert decoding.wanted([wanted]) is None
    rows, ends = [], []
    for batches, next_offset in decoding.alone([one], wanted):
        rows += [row for batch in batches for row in batch.to_pylist()]
        ends.append(next_offset)
    assert ends[-1] == one.next_offset
    return rows


def test_records_have_the_columns_of_their_schema(registry):
    rows = _rows(0, 9)
    values = _records(registry, V1, rows)
    assert _alone(_decoding(registry), fetched(values)) == rows.to_pylist()


def test_records_of_several_schemas_are_resolved_to_the_latest_in_their_order(registry):
    old = _records(registry, V1, _rows(0, 5))
    new = _records(registry, V2, _rows(5, 5, tag="x"))
    mixed = [value for pair in zip(old, new, strict=True) for value in pair]
    rows = _alone(_decoding(registry), fetched(mixed))
    assert [row["id"] for row in rows] == [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]
    assert [row["tag"] for row in rows] == ["none", "x"] * 5
    assert [row["fare"] for row in rows[:4]] == [None, None, 0.5, 0.5]


def test_a_version_may_be_chosen_and_a_later_schema_is_fetched_once(registry):
    _records(registry, V1, _rows(0, 1))
    decoding = _decoding(registry, value__schema__version="1")
    asked = len(registry.asked)
    new = _records(registry, _schema(ID, FARE, TAG), _rows(5, 5, tag="x"))
    for _ in range(2):
        rows = _alone(decoding, fetched(new))
        assert [row["id"] for row in rows] == list(range(5, 10))
        assert rows[0].keys() == {"id", "fare"}
    assert len(registry.asked) == asked + 1


def test_columns_and_the_place_of_a_record(registry):
    values = _records(registry, V2, _rows(0, 2, tag="x"))
    decoding = _decoding(registry, columns="_offset,tag,_key,_topic,_partition,ID")
    assert _alone(decoding, fetched(values, [b"k", None])) == [
        {"_offset": 0, "tag": "x", "_key": b"k", "_topic": "t", "_partition": 0, "id": 0},
        {"_offset": 1, "tag": "x", "_key": None, "_topic": "t", "_partition": 0, "id": 1},
    ]


def test_rows_of_several_partitions(registry):
    decoding_columns = "_partition,_offset,id"
    values = _records(registry, V1, _rows(0, 3))
    fetches = [fetched(values, tp=T0), fetched(values[:2], tp=T1)]
    decoding = _decoding(registry, columns=decoding_columns)
    batches = list(decoding.together(fetches, {T0: 2, T1: 2}))
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == [
        (0, 0, 0),
        (0, 1, 1),
        (1, 0, 0),
        (1, 1, 1),
    ]


def test_a_condition_drops_rows_also_by_a_column_that_is_not_read(registry):
    values = _records(registry, V1, _rows(0, 9))
    rows = _alone(_decoding(registry, columns="id", where="fare >= 2"), fetched(values))
    assert [row["id"] for row in rows] == [4, 5, 7, 8]


def test_tombstones_are_read_where_they_are_asked_for(registry):
    values = [*_records(registry, V1, _rows(0, 2)), None]
    assert [row["id"] for row in _alone(_decoding(registry), fetched(values))] == [0, 1]
    rows = _alone(_decoding(registry, columns="id,_deleted"), fetched(values))
    assert [tuple(row.values()) for row in rows] == [(0, False), (1, False), (None, True)]


def test_keys_in_avro(registry):
    values = _records(registry, V1, _rows(0, 2))
    single = pa.record_batch({"value": ["a"]})
    keys = [*_records(registry, KEY, single, "t-key"), None]
    decoding = _decoding(registry, key__format="avro", columns="_key,id")
    assert [row["_key"] for row in _alone(decoding, fetched(values, keys))] == ["a", None]
    composite = _schema(ID, {"name": "part", "type": "int"}, name="K")
    rows = pa.record_batch({"id": pa.array([7]), "part": pa.array([1], pa.int32())})
    keys = [*_records(registry, composite, rows, "t-key"), None]
    decoding = _decoding(registry, key__format="avro", columns="_key,id")
    assert [row["_key"] for row in _alone(decoding, fetched(values, keys))] == [
        {"id": 7, "part": 1},
        None,
    ]


def _damaged(registry):
    """Records, each with what is said about it."""
    good, other = _records(registry, V1, _rows(0, 2))
    registry.register("p", 'syntax = "proto3";', kind="PROTOBUF")
    proto = max(registry.by_id)
    large = registry.register("large", _schema(ID, FARE, name="R" * 5_000_000))
    return [
        (good, None),
        (b"", "it has 0 bytes, and the framing alone has 5"),
        (good[:4], "it has 4 bytes"),
        (b"\x01" + good[1:], "it begins with the byte 1, and with 0 in Confluent's framing"),
        (b"\0\0\x0f\xff\xff" + good[5:], "no schema of id 1048575"),
        (b"\0\xff\xff\xff\xff" + good[5:], "its schema id is -1"),
        (b"\0" + proto.to_bytes(4, "big"), "PROTOBUF"),
        (b"\0" + large.to_bytes(4, "big") + good[5:], "more than 1024 KiB"),
        (good[:-1], "schema id 300"),
        (good + b"\0", "schema id 300"),
        (other, None),
    ]


def test_a_record_that_cannot_be_decoded_ends_the_query_with_its_place(registry):
    for value, told in _damaged(registry)[1:-1]:
        good = _damaged(registry)[0][0]
        with pytest.raises(ConnectorError, match=r"^\[BAD_RECORD\] ") as raised:
            _alone(_decoding(registry), fetched([good, value, good]))
        assert "the record of t-0 at offset 1" in str(raised.value)
        assert told in str(raised.value)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("where", [None, "id >= 1"])
def test_permissive_reads_such_records_as_nulls_with_their_reason(registry, where):
    damaged = _damaged(registry)
    options = {} if where is None else {"where": where}
    rows = _alone(
        _decoding(registry, mode="permissive", columns="_offset,id", **options),
        fetched([value for value, _ in damaged]),
    )
    kept = [n for n, (_, told) in enumerate(damaged) if told or n == 10 or where is None]
    assert [row["_offset"] for row in rows] == kept
    for row in rows:
        told = damaged[row["_offset"]][1]
        assert (row["_error"] is None) == (told is None)
        if told is not None:
            assert told in row["_error"]
            assert row["id"] is None


def test_records_of_very_many_unknown_ids_cost_one_request_and_others_are_read(registry):
    good = _records(registry, V1, _rows(0, 3))
    count = 20_000
    hostile = [b"\0" + (7_000_000 + number).to_bytes(4, "big") for number in range(count)]
    values = [good[0], *hostile[::2], good[1], *hostile[1::2], good[2]]
    decoding = _decoding(registry, mode="permissive", columns="id")
    before = len(registry.asked)
    begun_s = time.process_time()
    rows = _alone(decoding, fetched(values))
    assert time.process_time() - begun_s < 30
    assert registry.asked[before:] == [("GET", "/schemas?deleted=true")]
    right = {0: 0, 1 + count // 2: 1, count + 2: 2}
    assert {n: row["id"] for n, row in enumerate(rows) if row["_error"] is None} == right
    for n in (1, count // 2, count + 1):
        number = int.from_bytes(values[n][1:], "big")
        assert rows[n]["_error"].endswith(f"knows no schema of id {number}")


def test_an_id_may_become_known_while_a_task_runs(registry, monkeypatch):
    monkeypatch.setattr(schema_registry, "UNKNOWN_ID_S", 0.0)
    (good,) = _records(registry, V1, _rows(0, 1))
    later = b"\0" + (301).to_bytes(4, "big") + good[5:]
    decoding = _decoding(registry, mode="permissive", columns="id")
    assert [row["id"] for row in _alone(decoding, fetched([good, later]))] == [0, None]
    assert registry.register("u", _schema(ID, {**FARE, "doc": "as before"})) == 301
    assert [row["id"] for row in _alone(decoding, fetched([good, later]))] == [0, 0]


def test_unknown_ids_take_nothing_away_that_is_known(registry, monkeypatch):
    monkeypatch.setattr(record_decoder, "MAX_PLANS", 2)
    old, new = _records(registry, V1, _rows(0, 1)), _records(registry, V2, _rows(1, 1, tag="x"))
    unknown = [b"\0" + number.to_bytes(4, "big") for number in range(50)]
    decoding = _decoding(registry, mode="permissive", columns="id")
    _alone(decoding, fetched([*old, *new]))
    made = []
    monkeypatch.setattr(record_decoder, "Resolver", lambda *_: made.append(_))
    rows = _alone(decoding, fetched([*unknown, *old, *unknown, *new]))
    assert [row["id"] for row in rows if row["_error"] is None] == [0, 1]
    assert not made


def test_dead_letters_have_the_bytes_of_records(registry):
    damaged = _damaged(registry)
    values = [value for value, _ in damaged]
    rows = _alone(
        _decoding(registry, mode="dead-letter", columns="id"),
        fetched(values, [b"%d" % n for n in range(len(values))]),
    )
    assert [row["_raw_value"] for row in rows] == values
    assert [row["_raw_key"] for row in rows] == [b"%d" % n for n in range(len(values))]
    assert [row["id"] for row in rows] == [0, *[None] * 9, 1]
    assert list(rows[0]) == ["id", "_error", "_raw_key", "_raw_value", "_topic", "_partition",
                             "_offset", "_timestamp", "_headers"]  # fmt: skip


def test_a_damaged_key_is_told(registry):
    values = _records(registry, V1, _rows(0, 1))
    registry.register("t-key", KEY)
    decoding = _decoding(registry, key__format="avro", mode="permissive", columns="_key,id")
    (row,) = _alone(decoding, fetched(values, [b"plain"]))
    assert row["_error"].startswith("key: it begins with the byte 112")
    assert (row["_key"], row["id"]) == (None, 0)


def test_a_schema_whose_reference_is_gone_is_told_with_its_records(registry):
    values = _records(registry, V1, _rows(0, 1))
    lost = {"name": "X", "subject": "x", "version": 1}
    schema_id = registry.register("u-value", V2, references=[lost])
    damaged = b"\0" + schema_id.to_bytes(4, "big") + values[0][5:]
    rows = _alone(
        _decoding(registry, mode="permissive", columns="_offset"), fetched([*values, damaged])
    )
    assert rows[0] == {"_offset": 0, "_error": None}
    assert f"schema id {schema_id}: the schema registry" in rows[1]["_error"]


def test_a_registry_that_is_away_is_one_line(registry):
    _records(registry, V1, _rows(0, 1))
    decoding = _decoding(registry, schema__registry__default__api__timeout__ms="300")
    new = _records(registry, V2, _rows(0, 1, tag="x"))
    registry.failures = [503] * 1000
    with pytest.raises(ConnectorError, match=r"^\[SCHEMA_REGISTRY_AWAY\] .* gave no answer for"):
        _alone(decoding, fetched(new))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}',
         "'L' contains itself"),
        (_schema({"name": "a", "type": "int"}, {"name": "A", "type": "int"}), "takes for one"),
        (_schema({"name": "_Offset", "type": "int"}), "'_Offset', which is the name of a column"),
        ("{", "version 1 of the subject 't-value'"),
    ],
)  # fmt: skip
def test_a_schema_that_has_no_columns_is_refused_by_one_line(registry, text, told):
    registry.register("t-value", text)
    with pytest.raises(ConnectorError, match=r"^\[BAD_SCHEMA\] ") as raised:
        _read(registry)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_the_registry_does_not_have_is_told(registry):
    with pytest.raises(ConnectorError, match=r"\[NO_SCHEMA\] .* under the subject 't-value'"):
        _read(registry)
    registry.register("t-value", V1)
    with pytest.raises(ConnectorError, match="no schema of version 2 under the subject"):
        _read(registry, value__schema__version="2")
    with pytest.raises(OptionError, match="'nothing'"):
        _read(registry, columns="nothing")


def test_a_schema_that_is_no_record_is_one_column(registry):
    values = _records(registry, '"long"', pa.record_batch({"value": pa.array([1, 2])}))
    assert _alone(_decoding(registry), fetched(values)) == [{"value": 1}, {"value": 2}]


def test_another_schema_than_before_is_one_line_that_tells_the_remedy(registry):
    _records(registry, V1, _rows(0, 1))
    before = _read(registry).marks
    check_same_schemas(before, _read(registry).marks)
    check_same_schemas({}, before)
    _records(registry, V2, _rows(0, 1, tag="x"))
    with pytest.raises(OptionError, match=r"\[SCHEMA_CHANGED\] ") as raised:
        check_same_schemas(before, _read(registry).marks)
    assert "in version 1 of the subject 't-value' (id 300)" in str(raised.value)
    assert "value.schema.version=1" in str(raised.value)
    check_same_schemas(before, _read(registry, value__schema__version="1").marks)
