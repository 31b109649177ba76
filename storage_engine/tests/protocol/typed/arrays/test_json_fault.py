"""The error names the first record that does not fit, its column, and the value."""

import json

import pytest

from storage_engine.core.errors import InvalidRecordError
from storage_engine.protocol.typed.arrays import json_fault
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.tests.protocol.typed.json_support import DDL, records_of, typed
from storage_engine.tests.protocol.typed.logs import schema_of

GOOD = '{"id": 1}'

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


SCHEMA = schema_of("id BIGINT, s STRING, a ARRAY<INT>, m MAP<STRING, INT>")


def test_a_long_record_that_does_not_fit_is_refused_without_python_reading_it(monkeypatch):
    """Python would make an object of each of its numbers, and let nothing else run meanwhile."""
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("read by Python"))
    numbers = b"1," * (json_fault.MOST_BYTES // 2)
    with pytest.raises(InvalidRecordError, match=r"record 1 is not stored: .*id.* from number"):
        typed(records_of(["{}", b'{"id": "x", "a": [%s1]}' % numbers]), SCHEMA)
