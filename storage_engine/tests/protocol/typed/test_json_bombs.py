"""JSON that is small on the wire and large in memory or in time: a batch of a few kilobytes must
stop no broker. Texts are decompressed to at most 64 MiB before they come here."""

import json

import pytest

from storage_engine.core.errors import InvalidRecordError
from storage_engine.protocol.typed.arrays import json_fault
from storage_engine.protocol.typed.arrays.json_parser import LARGE_BYTES, MOST_PREPARED_SIGNS
from storage_engine.tests.protocol.typed.logs import schema_of
from storage_engine.tests.protocol.typed.test_json import records_of, rows_in, typed

LARGE = 16 << 20
SCHEMA = schema_of("id BIGINT, s STRING, a ARRAY<INT>, m MAP<STRING, INT>")


def test_a_long_record_that_does_not_fit_is_refused_without_python_reading_it(monkeypatch):
    """Python would make an object of each of its numbers, and let nothing else run meanwhile."""
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("read by Python"))
    numbers = b"1," * (json_fault.MOST_BYTES // 2)
    with pytest.raises(InvalidRecordError, match=r"record 1 is not stored: .*id.* from number"):
        typed(records_of(["{}", b'{"id": "x", "a": [%s1]}' % numbers]), SCHEMA)


def test_a_record_with_millions_of_small_parts_is_refused():
    members = b'"":1,' * (MOST_PREPARED_SIGNS // 2)
    with pytest.raises(
        InvalidRecordError, match=r"record 1 is not stored: .*: send smaller records"
    ):
        typed(records_of(["{}", b'{"m": {%s"a": 1}}' % members], batch_bytes=LARGE), SCHEMA)


def test_a_record_of_megabytes_of_text_is_taken():
    text = "x" * (2 * LARGE_BYTES)
    (row,) = rows_in(
        typed(records_of([f'{{"s": "{text}", "m": {{"a": 1}}}}'], batch_bytes=LARGE), SCHEMA),
        SCHEMA,
    )
    assert row == {"id": None, "s": text, "a": None, "m": [("a", 1)]}


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_refused_and_overflows_no_stack(opening):
    for content in ('{"id": ', '{"a": ', '{"m": ', "", '{"unknown": '):
        with pytest.raises(InvalidRecordError, match="record 0 is not stored"):
            typed(records_of([content + opening * 100_000]), SCHEMA)
