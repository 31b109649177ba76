"""JSON records of foreign clients become typed batches, or are refused by their number."""

import pytest

from storage_engine.core.errors import RecordTooLargeError
from storage_engine.protocol.records.record_batch import Codec, patch_producer, read_header
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.tests.protocol.typed.json_support import as_json, records_of, rows_in, typed
from storage_engine.tests.protocol.typed.logs import schema_of


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


def test_columns_of_any_name_are_fields_of_the_object():
    schema = schema_of("_id BIGINT NOT NULL, __deleted STRING, `maße` INT, masse INT", ["_id"])
    value = '{"_id":1,"__deleted":"f","maße":2,"masse":3}'
    made = typed(records_of([value]), schema)
    assert rows_in(made, schema) == [{"_id": 1, "__deleted": "f", "maße": 2, "masse": 3}]
    records = decode_batches([as_json(made, schema)])
    assert (records.values[0].as_py().decode(), records.keys[0].as_py()) == (value, b"1")


def test_key_columns_that_a_value_leaves_out_are_taken_from_the_key():
    schema = schema_of("id BIGINT, day STRING, v STRING", ["id", "day"])
    key = b'{"id":1,"day":"a"}'
    values = ['{"v": "x"}', '{"id": 1, "v": "y"}', '{"id": 1, "day": "a"}', '{"id": 2, "day": "b"}']
    made = typed(records_of(values, [key, key, key, None]), schema)
    assert rows_in(made, schema) == [
        {"id": 1, "day": "a", "v": "x"},
        {"id": 1, "day": "a", "v": "y"},
        {"id": 1, "day": "a", "v": None},
        {"id": 2, "day": "b", "v": None},
    ]
    with pytest.raises(RowsDoNotFitError, match=r"record 1 has the key .* say .*2"):
        typed(records_of([values[0], '{"id": 2}'], [key, key]), schema)
    alone = schema_of("id BIGINT, v STRING", ["id"])
    with pytest.raises(RowsDoNotFitError, match="row 1 has null in the column 'id'"):
        typed(records_of(['{"v": "x"}', '{"v": "y"}'], [b"1", None]), alone)
