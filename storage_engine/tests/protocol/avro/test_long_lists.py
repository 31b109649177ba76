"""A record of any shape is read in a time that its bytes allow, whatever it is made for."""

import json
from io import BytesIO
from typing import Any
from unittest.mock import patch

import fastavro
import pytest

from storage_engine.core.errors import RecordTooLargeError
from storage_engine.protocol.avro import record_bytes, value_room
from storage_engine.protocol.avro.damage import TOO_LONG
from storage_engine.protocol.avro.decode import Decoder, decode
from storage_engine.protocol.avro.record_bytes import Bodies, Rows
from storage_engine.protocol.avro.value_room import ValueRoom
from storage_engine.protocol.avro.walk import Walk
from storage_engine.tests.protocol.avro.avro_samples import bodies, parsed, varint

MOST_PASSES = 2_000
"""Over columns, each of which takes some 50 µs: a tenth of a second."""
SIZE = 40_000
_WIDE = {
    "type": "record",
    "name": "Wide",
    "fields": [{"name": f"c{number}", "type": "string"} for number in range(300)],
}


def record_of(kind):
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}


def nested(depth, leaf, kind="array"):
    for _ in range(depth):
        leaf = {"type": kind, "items" if kind == "array" else "values": leaf}
    return leaf


def lists(depth, count, leaf):
    for _ in range(depth):
        leaf = varint(count) + leaf * count + b"\0"
    return leaf


def items(body, count=None):
    """One block of items; `count`: the items in the body, if not one for each of its bytes."""
    return varint(len(body) if count is None else count) + body + b"\0"


SHAPES = {
    "texts in blocks of one": (nested(1, "string"), b"\2\0" * (SIZE // 2) + b"\0"),
    "numbers in blocks of one": (nested(1, "long"), b"\2\2" * (SIZE // 2) + b"\0"),
    "nulls in blocks of one": (nested(1, "null"), b"\2" * SIZE + b"\0"),
    "sized blocks": (nested(1, "string"), b"\1\2\0" * (SIZE // 3) + b"\0"),
    "empty lists": (nested(2, "int"), items(b"\0" * SIZE)),
    "lists of two blocks": (nested(2, "string"), items(b"\2\0\2\0\0" * 7_000, 7_000)),
    "blocks of one within": (nested(2, "string"), b"\2" + b"\2\0" * (SIZE // 2) + b"\0\0"),
    "lists of lists of lists": (nested(4, "int"), lists(4, 14, b"\2")),
    "small lists before a long text": (
        nested(3, "string"),
        items(lists(2, 20, b"\2a") * 20 + items(items(varint(SIZE) + b"a" * SIZE, 1), 1), 21),
    ),
    "very deep": (nested(50, "int"), b"\2" * 49 + items(b"\2" * SIZE) + b"\0" * 49),
    "maps of maps": (nested(2, "int", "map"), items(b"\0\2\0\2\0" * 7_000, 7_000)),
    "wide items": (nested(1, _WIDE), items(bytes(300 * 120), 120)),
    "wide items or null": (
        nested(1, ["null", _WIDE]),
        items((b"\2" + bytes(300)) * 120, 120),
    ),
    "unions": (
        nested(1, ["null", nested(1, "string"), "int"]),
        items(b"\0\2\2\0\0\4\2" * 5_000, 15_000),
    ),
}


class Passes:
    """Counts passes over columns."""

    def __init__(self, monkeypatch):
        self.count = 0
        varints = Rows.varints

        def counted(rows, places):
            self.count += 1
            return varints(rows, places)

        monkeypatch.setattr(Rows, "varints", counted)


def as_in_python(value):
    """Maps as dicts, and unions as their only member that has a value."""
    if isinstance(value, dict) and "member0" in value:
        return as_in_python(next(iter(v for v in value.values() if v is not None)))
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return {key: as_in_python(each) for key, each in value}
        return [as_in_python(each) for each in value]
    return value


@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_record_of_any_shape_takes_few_passes(shape, monkeypatch):
    kind, body = SHAPES[shape]
    passes = Passes(monkeypatch)
    found = decode(parsed(record_of(kind)), bodies([b"\0", body, b"\0"]))
    assert passes.count < MOST_PASSES
    assert found.damaged == ()
    read: Any = fastavro.schemaless_reader(BytesIO(body), fastavro.parse_schema(record_of(kind)))
    columns = found.batch.column(0).to_pylist()
    assert (columns[0], columns[2]) == ([], [])
    assert (as_in_python(columns[1]) or []) == (read["f"] or [])
    passes.count = 0
    assert Decoder(parsed(record_of(kind)), []).decode(bodies([body])).damaged == ()
    assert passes.count < MOST_PASSES


@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_record_that_is_cut_is_told_as_quickly(shape, monkeypatch):
    kind, body = SHAPES[shape]
    passes = Passes(monkeypatch)
    cut = [body[:-2], body[: len(body) // 2], body + b"\2"]
    found = decode(parsed(record_of(kind)), bodies([b"\0", *cut, b"\0"]))
    assert [each.row for each in found.damaged] == [1, 2, 3]
    assert passes.count < MOST_PASSES


@pytest.mark.parametrize("item", ["null", {"type": "fixed", "name": "F", "size": 0}, _WIDE])
@pytest.mark.parametrize("count", [2**40, 2**62, -(2**62), 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_count_beyond_what_there_is_takes_neither_memory_nor_time(item, count, depth):
    tree = parsed(record_of(nested(depth, item)))
    hostile = b"\2" * (depth - 1) + varint(count) + b"\0" * (depth + 2)
    for before in (b"", b"\2\0\0"):
        found = decode(tree, bodies([b"\0", before + hostile, b"\0"]))
        assert [each.row for each in found.damaged] == [1]
        assert found.batch.column(0).to_pylist() == [[], None, []]


def test_a_record_that_takes_too_many_steps_is_told_and_others_are_read(monkeypatch):
    """The limit is low here; that of a task is reached by records of some megabytes."""
    monkeypatch.setattr(record_bytes, "MOST_STEPS", 3_000)
    tree = parsed(record_of(nested(2, "string")))
    short, long = lists(2, 30, b"\2a"), lists(2, 60, b"\2a")
    blocks = (b"\2" + items(b"\0" * 30)) * 200 + b"\0"
    found = decode(tree, bodies([short, long, short, blocks, short]))
    assert [(each.row, each.reason) for each in found.damaged] == [(1, TOO_LONG), (3, TOO_LONG)]
    right = [["a"] * 30] * 30
    assert found.batch.column(0).to_pylist() == [right, None, right, None, right]
    assert json.dumps(TOO_LONG).count("4,000,000") == 1


def test_rounds_for_few_rows_count_as_steps(monkeypatch):
    monkeypatch.setattr(value_room, "_STEPS_EVERYWHERE", 10_000)
    decoder = Decoder(parsed(record_of(nested(1, "string"))))

    def read(items_each):
        data = bodies([items(b"\2a" * items_each, items_each)] * 40)
        return decoder.decode_all(Bodies.of(data), ValueRoom(40 * items_each))

    (column,) = read(100)
    assert column.to_pylist() == [["a"] * 100] * 40
    with pytest.raises(RecordTooLargeError, match="take too long: send smaller batches"):
        read(300)


def test_the_reasons_of_very_many_damaged_records_are_bounded():
    tree = parsed(record_of(nested(1, "string")))
    damaged = items(b"\0" * 15_000 + b"\1")
    walked = []
    walk = Walk.value

    def counted(self, kind, path):
        walked.append(1)
        walk(self, kind, path)

    with patch.object(Walk, "value", counted):
        found = decode(tree, bodies([damaged] * 50))
    assert len(found.damaged) == 50
    assert found.damaged[0].reason == "'f[15000]' has -1 bytes, and 1 are left"
    assert found.damaged[-1].reason == "its bytes do not fit the schema"
    assert len(walked) < 130_000
