"""Values in Avro as JSON text."""

import json
from base64 import b64encode
from decimal import Decimal
from math import inf

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.schemas.avro import schema as avro
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.protocol.avro_json import AvroJson
from storage_engine.tests.protocol.avro.avro_samples import (
    encoded,
    in_columns,
    parsed,
    record_schemas,
    values,
)

MANY = 1 << 20
TIMES = ("date", "stamp")


def read(tree, bodies, most_chars=MANY):
    """The texts of all rows, and the reasons."""
    texts: list[str | None] = []
    reasons: dict[int, str] = {}
    for piece in AvroJson(tree, most_chars).read(pa.array(bodies, pa.binary())):
        assert piece.row == len(texts)
        texts += piece.texts.to_pylist()
        reasons |= piece.reasons
    return texts, reasons


def exact(text):
    """The value of a JSON text, whose numbers lose nothing."""
    return json.loads(text, parse_float=Decimal)


def plain(tree, value, avro_type=None):
    """The JSON that a value is to have, by the naive rule of each type; any text for times, which
    other tests look at."""
    found = tree.resolve(tree.root if avro_type is None else avro_type)
    match found:
        case avro.Array():
            return [plain(tree, each, found.items) for each in value]
        case avro.Map():
            return {key: plain(tree, each, found.values) for key, each in value.items()}
        case avro.Record():
            return {f.name: plain(tree, value[f.name], f.type) for f in found.fields}
        case avro.Union():
            number, inner = value
            return plain(tree, inner, found.branches[number])
        case avro.Primitive(name="float" | "double"):
            infinities = {inf: "Infinity", -inf: "-Infinity"}
            return infinities.get(value, pytest.approx(value))
    if isinstance(found, avro.Primitive | avro.Fixed) and is_time(found):
        return AnyText()
    shown = in_columns(tree, value, found)
    return b64encode(shown).decode() if isinstance(shown, bytes) else shown


def is_time(found):
    logical = getattr(found.logical, "value", "")
    return any(each in logical for each in TIMES) and "nanos" not in logical


class AnyText:
    """Equal to each text."""

    def __eq__(self, other):
        return isinstance(other, str)

    def __hash__(self):
        return 0


@given(st.data())
def test_each_value_is_what_its_bytes_say(data):
    tree = parsed(data.draw(record_schemas()))
    rows = data.draw(st.lists(values(tree), min_size=1, max_size=4))
    texts, reasons = read(tree, [encoded(tree, row) for row in rows])
    assert reasons == {}
    assert "\n" not in "".join(texts)
    for text, row in zip(texts, rows, strict=True):
        assert matches(exact(text), plain(tree, row)), text


def matches(found, wanted):
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict)
            and found.keys() == wanted.keys()
            and all(matches(found[key], wanted[key]) for key in wanted)
        )
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(matches, found, wanted))
    if isinstance(wanted, Decimal):
        return Decimal(found) == wanted
    if isinstance(found, Decimal):
        return float(found) == wanted
    return found == wanted


def test_a_union_is_the_value_of_its_branch_and_a_decimal_keeps_its_digits():
    tree = parsed(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {
                    "name": "u",
                    "type": ["null", "string", "long", {"type": "array", "items": "int"}],
                },
                {
                    "name": "d",
                    "type": {
                        "type": "bytes",
                        "logicalType": "decimal",
                        "precision": 9,
                        "scale": 2,
                    },
                },
            ],
        }
    )
    rows = [(0, None), (1, 'a"b\n'), (2, 7), (3, [1, 2])]
    texts, _ = read(tree, [encoded(tree, {"u": each, "d": b"\x6e"}) for each in rows])
    assert texts == [
        '{"u":null,"d":1.10}',
        '{"u":"a\\"b\\n","d":1.10}',
        '{"u":7,"d":1.10}',
        '{"u":[1,2],"d":1.10}',
    ]


def test_a_damaged_record_has_its_reason_and_its_neighbours_their_values():
    tree = parsed({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]})
    texts, reasons = read(tree, [b"\x02x", b"\x7fx", b"\x02xy", b"\x02y"])
    assert [texts[0], texts[3]] == ['{"a":"x"}', '{"a":"y"}']
    assert set(reasons) == {1, 2} and "bytes are left" in reasons[2]


def test_a_text_that_would_be_too_long_is_not_made():
    """Its 200 empty records have a name of 900 characters each, in 4 bytes."""
    name = "n" * 900
    inner = {"type": "record", "name": "I", "fields": [{"name": name, "type": "null"}]}
    tree = parsed({"type": "array", "items": inner})
    small, large = encoded(tree, [{name: None}]), encoded(tree, [{name: None}] * 200)
    texts, reasons = read(tree, [small, large, small], most_chars=MANY // 8)
    assert reasons == {1: "its JSON would have more than 0 MiB"}
    assert texts[0] == texts[2] == f'[{{"{name}":null}}]'


def test_a_schema_that_contains_itself_is_refused():
    fields = [{"name": "next", "type": ["null", "R"]}]
    with pytest.raises(InvalidSchemaError, match="contains itself"):
        AvroJson(parsed({"type": "record", "name": "R", "fields": fields}), MANY)
