"""Typed batches as JSON records, and JSON records as typed batches."""

import base64
import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import RecordTooLargeError
from storage_engine.core.typed.column_types import MapColumn, StringColumn, ddl_of
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import ColumnSpec, new_schema
from storage_engine.protocol.records.record_batch import (
    Codec,
    crc_matches,
    patch,
    patch_producer,
    read_header,
)
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.protocol.typed.json_columns import typed_from_json
from storage_engine.protocol.typed.json_rows import as_json_batches
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.protocol.typed.typed_batch import check_typed_batch
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.protocol.typed.typed_keys import key_bytes
from storage_engine.tests.protocol.typed.logs import (
    NOW,
    TOPIC_ID,
    decoded,
    encoded,
    log_of,
    rows_from,
    schema_of,
    table_of,
)
from storage_engine.tests.protocol.typed.same_values import comparable
from storage_engine.tests.protocol.typed.typed_values import rows_of, schemas_and_rows, values
from storage_engine.tests.sampling import examples

PLAN_ALL = ["_offset", "_headers", "_timestamp"]


def as_json(log, schema):
    return as_json_batches(log, read_header(log), schema)


def records_of(values, keys=None, **options):
    """A plain batch as a foreign client sends it."""
    as_bytes = [v if v is None or isinstance(v, bytes) else v.encode() for v in values]
    (batch,) = encode_batches(
        pa.array(as_bytes, pa.binary()),
        None if keys is None else pa.array(keys, pa.binary()),
        now_ms=NOW,
        **options,
    )
    return batch.data


def typed(data, schema, codec=Codec.NONE):
    """What a broker makes of a plain batch, checked as it checks those of others."""
    made = memoryview(typed_from_json(data, read_header(data), schema, TOPIC_ID, codec))
    header = read_header(made)
    assert crc_matches(made, 0, len(made))
    check_typed_batch(header, made, schema=schema, topic_id=TOPIC_ID)
    return made


def rows_in(data, schema):
    return table_of(decoded(data, schema), plan(schema)).to_pylist()


def plain_json(value, column_type):
    """The value as Python's json gives it back."""
    match value:
        case None:
            return None
        case float():
            if math.isnan(value):
                return "NaN"
            return value if math.isfinite(value) else ("-" if value < 0 else "") + "Infinity"
        case datetime():
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
            return text + "Z" if value.tzinfo else text
        case date():
            return value.isoformat()
        case timedelta():
            return value // timedelta(microseconds=1)
        case bytes():
            return base64.b64encode(value).decode()
    name = type(column_type).__name__
    if name == "ArrayColumn":
        return [plain_json(each, column_type.element) for each in value]
    if name == "StructColumn":
        return {f.name: plain_json(value[f.name], f.type) for f in column_type.fields}
    if isinstance(column_type, MapColumn):
        pairs = [
            (plain_json(k, column_type.key), plain_json(v, column_type.value)) for k, v in value
        ]
        if isinstance(column_type.key, StringColumn):
            return dict(pairs)
        return [{"key": key, "value": each} for key, each in pairs]
    return value


def parsed(text):
    """What Python's json reads; decimals and floats by their value."""
    return json.loads(text, parse_float=Decimal)


def same(found, expected):
    """Numbers compare by value, FLOAT by what it is as a float of 32 bits."""
    if isinstance(expected, float):
        return float(found) == expected or pa.scalar(float(found), pa.float32()).as_py() == expected
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            same(found[name], expected[name]) for name in expected
        )
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == expected and isinstance(found, bool) == isinstance(expected, bool)


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_every_row_is_a_json_object_of_the_same_values_and_becomes_the_same_row_again(data):
    schema, rows = data.draw(schemas_and_rows())
    log = log_of(encoded(rows, schema))
    plain = as_json(log, schema)
    found = decode_batches([plain]).values.to_pylist()
    for text, row in zip(found, rows.to_pylist(), strict=True):
        expected = {c.name: plain_json(row[c.name], c.type) for c in schema.latest.visible}
        assert same(parsed(text), expected), (text, expected)
    assert comparable(rows_in(typed(plain, schema), schema)) == comparable(rows.to_pylist())


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


def test_a_batch_keeps_its_offsets_producer_times_and_headers_as_json():
    schema = schema_of("id BIGINT")
    headers = pa.array([[{"key": "k", "value": b"v"}], None, None], HEADERS_TYPE)
    (batch,) = encoded(
        rows_from(schema, [{"id": n} for n in range(3)]),
        schema,
        timestamps=pa.array([7, 3, 9]),
        headers=headers,
        producer_id=5,
        producer_epoch=1,
        base_sequence=70,
        transactional=True,
    )
    patch(batch.data, 0, base_offset=1000, leader_epoch=8)
    plain = as_json(batch.data, schema)
    header, before = read_header(plain), read_header(batch.data)
    assert crc_matches(plain, 0, len(plain))
    same_fields = "base_offset partition_leader_epoch last_offset_delta max_timestamp producer_id"
    for name in (*same_fields.split(), "producer_epoch", "base_sequence", "records_count"):
        assert getattr(header, name) == getattr(before, name)
    assert header.is_transactional and not header.attributes & 0x80
    records = decode_batches([plain], include_headers=True)
    assert records.offsets.to_pylist() == [1000, 1001, 1002]
    assert records.timestamps_ms.to_pylist() == [7, 3, 9]
    assert records.headers.to_pylist() == headers.to_pylist()
    back = typed(plain, schema)
    assert read_header(back)[:4] + read_header(back)[6:] == (
        *before[:1],
        read_header(back).length,
        *before[2:4],
        *before[6:],
    )
    assert back[61:] == batch.data[61:], "the columns are the same bytes"


def test_a_foreign_batch_is_never_split_and_keeps_its_sequence():
    schema = schema_of("id BIGINT, m MAP<STRING, INT>")
    data = records_of([f'{{"id": {n}, "m": {{"a": {n}}}}}' for n in range(5000)])
    patch_producer(data, 0, producer_id=1, producer_epoch=2, base_sequence=3, transactional=True)
    made = typed(data, schema, Codec.ZSTD)
    header = read_header(made)
    assert (header.records_count, header.producer_id, header.producer_epoch) == (5000, 1, 2)
    assert header.base_sequence == 3 and header.is_transactional
    assert rows_in(made, schema) == [{"id": n, "m": [("a", n)]} for n in range(5000)]


@pytest.mark.parametrize("codec", list(Codec))
def test_foreign_batches_of_every_codec_are_read(codec):
    schema = schema_of("id BIGINT, text STRING")
    data = records_of(
        ['{"id": 1, "text": "%s"}' % ("a" * 200), "{}"], compression=codec.name.lower()
    )
    assert rows_in(typed(data, schema), schema) == [
        {"id": 1, "text": "a" * 200},
        {"id": None, "text": None},
    ]


GOOD = '{"id": 1}'
DDL = (
    "id BIGINT NOT NULL, n TINYINT, f FLOAT, d DOUBLE, dec DECIMAL(5,2), s STRING, b BINARY,"
    " day DATE, at TIMESTAMP, ntz TIMESTAMP_NTZ, i INTERVAL DAY TO SECOND, a ARRAY<INT>,"
    " st STRUCT<x: INT, y: STRING>, m MAP<STRING, INT>, im MAP<INT, DOUBLE>, ok BOOLEAN"
)
BAD_VALUES = {
    '{"id": 1': "no JSON object",
    "": "no JSON object",
    " ": "no JSON object",
    "\n": "no JSON object",
    "null": "must be a JSON object",
    "5": "must be a JSON object",
    "[]": "must be a JSON object",
    '"x"': "must be a JSON object",
    '{"id": 1}{"id": 2}': "no JSON object",
    '{"id": 1}\n{"id": 2}': "no JSON object",
    '{"id": 1}}\n{"record":{"id": 2}': "no JSON object",
    '{"id": 1},"record":{"id": 2}': "no JSON object",
    '{"id": 1}, {"id": 2}': "no JSON object",
    '{"s": "a\nb", "id": 1}': "no JSON object",
    '{"id": 1, "id": 2}': "'id' stands twice",
    '{"id": 1, "x": 2}': "'x' is not in the topic's schema",
    '{"id": 1, "st": {"z": 2}}': "'st.z' is not in the topic's schema",
    '{"id": 1, "st": {"x": 2, "x": 2}}': "'st.x' stands twice",
    '{"id": 1.5}': r"'id' of type BIGINT can't hold 1\.5",
    '{"id": "1.0"}': r"'id' of type BIGINT can't hold \"1\.0\"",
    '{"id": 1e30}': "'id' of type BIGINT can't hold 1e30",
    '{"id": 1.0, "a": ["1"]}': "'a.element' of type INT can't hold \"1\"",
    '{"id": 1, "n": 128.0}': r"'n' of type TINYINT can't hold 128\.0",
    '{"id": NaN}': "'id' of type BIGINT can't hold NaN",
    '{"id": 1, "dec": NaN}': "'dec' of type DECIMAL\\(5,2\\) can't hold NaN",
    '{"id": 1, "s": NaN}': "'s' of type STRING can't hold NaN",
    '{"id": "1"}': r"'id' of type BIGINT can't hold \"1\"",
    '{"id": 9223372036854775808}': "'id' of type BIGINT can't hold 9223372036854775808",
    '{"id": true}': "'id' of type BIGINT can't hold true",
    '{"id": null}': "null in the column 'id', which is NOT NULL",
    "{}": "null in the column 'id', which is NOT NULL",
    '{"id": 1, "n": 128}': "'n' of type TINYINT can't hold 128",
    '{"id": 1, "f": 1e39}': "'f' of type FLOAT can't hold 1e39",
    '{"id": 1, "d": 1e999}': "'d' of type DOUBLE can't hold 1e999",
    '{"id": 1, "d": "nan"}': "'d' of type DOUBLE can't hold \"nan\"",
    '{"id": 1, "s": "NaN", "d": "x"}': "'d' of type DOUBLE can't hold \"x\"",
    '{"id": 1, "dec": 1234.5}': r"'dec' of type DECIMAL\(5,2\) can't hold 1234\.5",
    '{"id": 1, "dec": 1.234}': r"'dec' of type DECIMAL\(5,2\) can't hold 1\.234",
    '{"id": 1, "s": 5}': "'s' of type STRING can't hold 5",
    '{"id": 1, "s": {"a": 1}}': "'s' of type STRING can't hold an object",
    '{"id": 1, "b": "YQ"}': "'b' of type BINARY can't hold \"YQ\"",
    '{"id": 1, "b": "Y!==", "s": ""}': "'b' of type BINARY",
    '{"id": 1, "b": "=QQ="}': "'b' of type BINARY",
    '{"id": 1, "day": "2026-02-30"}': "'day' of type DATE can't hold \"2026-02-30\"",
    '{"id": 1, "day": 20000}': "'day' of type DATE can't hold 20000",
    '{"id": 1, "at": "2026-01-01T00:00:00"}': "'at' of type TIMESTAMP",
    '{"id": 1, "at": "2026-01-01T25:00:00Z"}': "'at' of type TIMESTAMP",
    '{"id": 1, "ntz": "2026-01-01T00:00:00Z"}': "'ntz' of type TIMESTAMP_NTZ",
    '{"id": 1, "i": "1"}': "'i' of type INTERVAL DAY TO SECOND",
    '{"id": 1, "a": {"x": 1}}': "'a' of type ARRAY<INT> can't hold an object",
    '{"id": 1, "a": [1, "x"]}': "'a.element' of type INT can't hold \"x\"",
    '{"id": 1, "st": []}': "'st' of type STRUCT",
    '{"id": 1, "m": {"a": 1, "a": 2}}': "'m.a' stands twice",
    '{"id": 1, "m": {"a" 1}}': "no JSON object",
    '{"id": 1, "m": {"a"}}': "no JSON object",
    '{"id": 1, "m": {{"key":"a","value":1}}}': "no JSON object",
    '{"id": 1, "m": {"a": 1,}}': "no JSON object",
    '{"id": 1, "m": {"a": 1 "b": 2}}': "no JSON object",
    '{"id": 1, "m": {"a"::1}}': "no JSON object",
    '{"id": 1, "m": {,}}': "no JSON object",
    '{"id": 1, "m": [}': "no JSON object",
    '{"id": 1, "m": {"a": "x"}}': "'m.a' of type INT can't hold \"x\"",
    '{"id": 1, "im": {"1": 2}}': "'im' of type",
    '{"id": 1, "im": [{"value": 2}]}': "",
    '{"id": 1, "im": [null]}': "",
    '{"id": 1, "ok": 1}': "'ok' of type BOOLEAN can't hold 1",
    b'{"id": 1, "s": "\xff"}': "no JSON object",
    '{"id": 1, "s": "\\ud800"}': "",
    '{"a": ' * 5000: "nested too deep",
}


@pytest.mark.parametrize("bad", list(BAD_VALUES))
@pytest.mark.parametrize("before", [0, 37])
def test_a_record_that_does_not_fit_is_named_by_its_number(bad, before):
    schema = schema_of(DDL)
    data = records_of([GOOD] * before + [bad] + [GOOD] * 20)
    with pytest.raises(RowsDoNotFitError, match=BAD_VALUES[bad] or "record") as found:
        typed(data, schema)
    assert found.value.row == before
    message = str(found.value)
    assert len(message) < 400 and "\n" not in message
    assert f"record {before} " in message or f"row {before} " in message


def test_large_integers_keep_their_digits_beside_one_with_a_point():
    schema = schema_of("id BIGINT")
    data = records_of(
        ['{"id": 9223372036854775807}', '{"id": 1.0}', '{"id": -9223372036854775808}']
    )
    assert [row["id"] for row in rows_in(typed(data, schema), schema)] == [2**63 - 1, 1, -(2**63)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('{"id": 1, "s": "NaN", "d": "NaN", "f": "-Infinity"}', {"s": "NaN", "f": -math.inf}),
        ('{"id": 1, "im": [{"key": 1, "value": "Infinity"}]}', {"im": [(1, math.inf)]}),
        ('{"id": 1, "m": {"d": 5, "\\"": 6, "": null}}', {"m": [("d", 5), ('"', 6), ("", None)]}),
        ('{"id": 1, "m": {} , "s": "{\\"m\\":{\\"a\\":1}}"}', {"m": [], "s": '{"m":{"a":1}}'}),
        ('\n{\n "id"\t: 1 ,\r\n "a" : [ 1 , null ] }\n', {"a": [1, None]}),
        (
            '{"id": 1, "at": "2026-01-01 02:00:00.5+02:00"}',
            {"at": datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)},
        ),
        ('{"\\u0069d": 1, "dec": 1e2}', {"dec": Decimal("100.00")}),
        ('{"id": 1, "dec": "12.50"}', {"dec": Decimal("12.50")}),
        ('{"id": 1, "d": NaN, "f": Infinity}', {"f": math.inf}),
        ('{"id": 1.0, "n": -0.0, "i": 1e3}', {"n": 0, "i": timedelta(milliseconds=1)}),
        ('{"id": 10E-1, "a": [2147483647.0, -1]}', {"a": [2147483647, -1]}),
        ('{"id": 1, "im": [{"key": 2.00, "value": 1}]}', {"im": [(2, 1.0)]}),
        ('{"id": 1, "m": {"a": 1.0}, "d": "NaN"}', {"m": [("a", 1)]}),
    ],
)
def test_json_that_fits_is_read(value, expected):
    schema = schema_of(DDL)
    (row,) = rows_in(typed(records_of([value]), schema), schema)
    assert row["id"] == 1 and {name: row[name] for name in expected} == expected


NESTED_DDL = "m MAP<STRING, MAP<STRING, ARRAY<STRUCT<m: MAP<STRING, DOUBLE>, x: STRING>>>>"
NESTED = schema_of(NESTED_DDL)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(values(NESTED.latest.columns[0].type), min_size=1, max_size=4))
def test_maps_inside_maps_are_read(cells):
    rows = pa.RecordBatch.from_arrays(
        [pa.array(cells, plan(NESTED).arrow_schema.field(0).type)], names=["m"]
    )
    plain = as_json(log_of(encoded(rows, NESTED)), NESTED)
    assert comparable(rows_in(typed(plain, NESTED), NESTED)) == comparable(rows.to_pylist())


PIECES = st.sampled_from(
    [
        '{"m":',
        "{",
        "}",
        "[",
        "]",
        '"a"',
        '"m"',
        ":",
        ",",
        "1",
        "null",
        '"key"',
        '"value"',
        "\\",
        '"',
        " ",
    ]
)


@settings(max_examples=examples(1500), deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_what_is_no_json_is_never_taken(text):
    schema = schema_of("m MAP<STRING, INT>")
    try:
        rows = rows_in(typed(records_of([text, '{"m":{"z":0}}']), schema), schema)
    except RowsDoNotFitError as error:
        assert error.row == 0
    else:
        content = json.loads(text)["m"] if json.loads(text) else None
        entries = (
            None
            if content is None
            else list(content.items())
            if isinstance(content, dict)
            else [(e["key"], e.get("value")) for e in content]
        )
        assert rows == [{"m": entries}, {"m": [("z", 0)]}]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b"2", '{"id": 1}', "record 1 has the key 2, its key columns 'id' say 1: send that key"),
        (b"01", '{"id": 1}', "its key columns 'id' say 1"),
        (b"01", None, "record 1 is not stored: its key"),
        (b"x", None, "record 1 is not stored: its key is not the one of the key columns"),
        (b'1,"v":"x"', None, "record 1 is not stored: its key"),
        (b'1}{"id":2', None, "record 1 is not stored: its key"),
        (b"\xff", None, "record 1 has a key that is not UTF-8"),
        (None, None, "record 1 has neither a key nor a value"),
    ],
)
def test_a_key_says_what_the_key_columns_say(key, value, message):
    schema = schema_of("id BIGINT, v STRING", ["id"])
    with pytest.raises(RowsDoNotFitError, match=message) as found:
        typed(records_of(['{"id": 7}', value], [None, key]), schema)
    assert found.value.row == 1


def test_a_topic_without_key_columns_takes_no_keys_and_no_tombstones():
    schema = schema_of("id BIGINT")
    with pytest.raises(RowsDoNotFitError, match="record 0 has the key x, but the topic has no key"):
        typed(records_of(['{"id": 7}'], [b"x"]), schema)
    with pytest.raises(RowsDoNotFitError, match="record 1 has a null value"):
        typed(records_of(['{"id": 7}', None], [None, b"x"]), schema)


def test_short_records_of_wide_topics_are_bounded():
    schema = schema_of(", ".join(f"c{n} BIGINT" for n in range(1900)))
    with pytest.raises(RecordTooLargeError, match="the missing ones included: send smaller"):
        typed(records_of(["{}"] * 20_000), schema)


def test_a_batch_that_is_short_as_columns_but_long_as_json_is_bounded():
    schema = schema_of(", ".join(f"column_{n} BIGINT" for n in range(1000)))
    rows = rows_from(schema_of("column_0 BIGINT"), [{}] * 20_000)
    (batch,) = encoded(rows, schema)
    with pytest.raises(RecordTooLargeError, match="bytes as JSON: read it with a client that"):
        as_json(batch.data, schema)


def test_json_has_the_columns_of_the_latest_version_in_their_latest_types():
    schema = schema_of("id INT, f FLOAT, gone STRING")
    log = log_of(encoded(rows_from(schema, [{"id": 1, "f": 0.1, "gone": "x"}]), schema))
    later = schema.evolved(parse_ddl("id BIGINT, f DOUBLE, added STRING"))
    (value,) = decode_batches([as_json(log, later)]).values.to_pylist()
    assert json.loads(value) == {"id": 1, "f": 0.10000000149011612, "added": None}


def test_times_outside_of_four_digits_have_a_sign_and_six():
    schema = schema_of("day DATE, at TIMESTAMP")
    days = [2_147_483_647, -719_163, 2_932_897, None]
    times = [(1 << 63) - 1, -(1 << 63), -62_135_596_800_000_001, 0]
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(days, pa.int32()).view(pa.date32()),
            pa.array(times, pa.int64()).view(pa.timestamp("us", "UTC")),
        ],
        names=["day", "at"],
    )
    found = decode_batches([as_json(log_of(encoded(rows, schema)), schema)]).values.to_pylist()
    assert [tuple(json.loads(each).values()) for each in found] == [
        ("+5881580-07-11", "+294247-01-10T04:00:54.775807Z"),
        ("+000000-12-31", "-290308-12-21T19:59:05.224192Z"),
        ("+010000-01-01", "+000000-12-31T23:59:59.999999Z"),
        (None, "1970-01-01T00:00:00.000000Z"),
    ]


def test_types_are_shown_as_the_schema_has_them():
    assert ddl_of(schema_of(DDL).latest.column("im").type) == "MAP<INT, DOUBLE>"


NEAR_ZERO = {
    "0": "0.00000000",
    "1E-8": "0.00000001",
    "-1E-8": "-0.00000001",
    "-0.0000012": "-0.00000120",
    "0.0000001": "0.00000010",
    "1": "1.00000000",
    "-1234.5": "-1234.50000000",
}


@pytest.mark.parametrize("key", [None, "k"])
def test_decimals_have_all_digits_of_their_scale(key):
    """Arrow writes numbers near zero with an exponent."""
    schema = schema_of("k DECIMAL(12,8) NOT NULL, d DECIMAL(38,38)", [] if key is None else [key])
    rows = [{"k": Decimal(each), "d": None} for each in NEAR_ZERO] * 2
    rows[1]["d"], rows[2]["d"] = Decimal("-1E-38"), Decimal("." + "9" * 38)
    log = log_of(encoded(rows_from(schema, rows), schema))
    records = decode_batches([as_json(log, schema)])
    texts = list(NEAR_ZERO.values()) * 2
    assert [each.decode().split(",")[0] for each in records.values.to_pylist()] == [
        f'{{"k":{each}' for each in texts
    ]
    assert b"-0." + b"0" * 37 + b"1" in records.values[1].as_py()
    assert records.keys.to_pylist() == [None if key is None else each.encode() for each in texts]
    again = records_of(records.values.to_pylist(), records.keys.to_pylist())
    assert rows_in(typed(again, schema), schema) == rows_in(log, schema)


def test_columns_of_any_name_are_fields_of_the_object():
    schema = schema_of("_id BIGINT NOT NULL, __deleted STRING, `maße` INT, masse INT", ["_id"])
    value = '{"_id":1,"__deleted":"f","maße":2,"masse":3}'
    made = typed(records_of([value]), schema)
    assert rows_in(made, schema) == [{"_id": 1, "__deleted": "f", "maße": 2, "masse": 3}]
    records = decode_batches([as_json(made, schema)])
    assert (records.values[0].as_py().decode(), records.keys[0].as_py()) == (value, b"1")
