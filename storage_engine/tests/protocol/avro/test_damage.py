"""A record that is damaged is told, or is a plausible other one; its neighbours are right."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.protocol.avro.decode import Decoder, decode
from storage_engine.tests.protocol.avro.avro_samples import (
    bodies,
    encoded,
    in_columns,
    lists_in_any_way,
    parsed,
    plain_values,
    read_by_fastavro,
    record_schemas,
    seeded,
    values,
    varint,
)


def record_of(field_type):
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": field_type}]}


def rows_of(batch):
    columns = [plain_values(each) for each in batch.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * batch.num_rows


def reason(field_type, body):
    """The only reason for which the second of three records is damaged."""
    good = encoded(parsed(record_of(field_type)), {"f": _GOOD[str(field_type)]})
    found = decode(parsed(record_of(field_type)), bodies([good, body, good]))
    assert [each.row for each in found.damaged] == [1]
    assert found.batch.column(0).is_valid().to_pylist() == [True, False, True]
    return found.damaged[0].reason


_NULLABLE = ["null", "int"]
_ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}
_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_LIST = {"type": "array", "items": "string"}
_EMPTIES = {"type": "array", "items": {"type": "record", "name": "N", "fields": []}}
_GOOD = {
    str(kind): value
    for kind, value in (
        ("boolean", True),
        ("int", 1),
        ("long", 1),
        ("string", "abc"),
        (_NULLABLE, (1, 5)),
        (_ENUM, "A"),
        (_DECIMAL, b"\1"),
        (_MILLIS, 5),
        (_LIST, ["a"]),
        (_EMPTIES, []),
    )
}


@pytest.mark.parametrize(
    ("field_type", "body", "expected"),
    [
        ("boolean", b"\2", "'f' is the byte 2, no boolean"),
        ("boolean", b"", "'f' has 1 bytes, and 0 are left"),
        ("int", b"\x80", "'f' is cut off"),
        ("int", varint(2**31), "'f' has a number of more than 32 bits"),
        ("long", b"\xff" * 9 + b"\2", "'f' has a number of more than 64 bits"),
        ("long", b"\xff" * 11 + b"\0", "'f' has a number of more than 64 bits"),
        ("string", varint(4) + b"abc", "'f' has 4 bytes, and 3 are left"),
        ("string", varint(-1) + b"abc", "'f' has -1 bytes, and 3 are left"),
        ("string", varint(2**62) + b"abc", f"'f' has {2**62} bytes, and 3 are left"),
        ("string", varint(2) + b"a\xff", "'f' is no text in UTF-8 from byte 1 on"),
        ("string", varint(3) + b"abcd", "1 bytes are left behind its last value"),
        (_NULLABLE, varint(2) + b"\0", "'f' has branch 2, and there are 2"),
        (_NULLABLE, varint(-1) + b"\0", "'f' has branch -1, and there are 2"),
        (_ENUM, varint(2), "'f' has symbol 2, and there are 2"),
        (_DECIMAL, varint(2) + b"\x03\xe8", "'f' has more than 3 digits"),
        (_DECIMAL, varint(17) + b"\x01" + bytes(16), "'f' has more than 3 digits"),
        (_MILLIS, varint(2**62), f"'f' is {2**62} ms, which no timestamp can be"),
        (_LIST, varint(3) + varint(1) + b"a\0", "'f[2]' is cut off"),
        (_LIST, varint(-1) + varint(3) + varint(1) + b"a\0",
         "'f' has a block that does not end where it says"),
        (_EMPTIES, varint(2**40) + b"\0", "its bytes do not fit the schema"),
        (_EMPTIES, varint(1500) + b"\0",
         "its arrays and maps have more values than its bytes allow"),
    ],
)  # fmt: skip
def test_damage_is_told_with_its_reason(field_type, body, expected):
    assert reason(field_type, body) == expected


@given(data=st.data())
def test_a_changed_byte_is_told_or_a_plausible_value_and_neighbours_are_right(data):
    schema = data.draw(record_schemas(most_fields=4, depth=2))
    tree = parsed(schema)
    rows = data.draw(st.lists(values(tree), min_size=3, max_size=3))
    random = seeded(data.draw(st.integers(0, 99)))
    records = [encoded(tree, row, random) for row in rows]
    decoder = Decoder(tree)
    right = rows_of(decoder.decode(bodies(records)).batch)
    damaged = records[1]
    tried = range(len(damaged)) if len(damaged) < 60 else random.sample(range(len(damaged)), 60)
    for place in tried:
        flipped = bytearray(damaged)
        flipped[place] ^= random.randint(1, 255)
        with lists_in_any_way(data.draw):
            found = decoder.decode(bodies([records[0], bytes(flipped), records[2]]))
        found.batch.validate(full=True)
        assert {each.row for each in found.damaged} <= {1}
        after = rows_of(found.batch)
        assert (after[0], after[2]) == (right[0], right[2])
        if found.damaged:
            assert set(after[1]) <= {None}


_OF_ALL_KINDS = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "big", "type": "long"},
        {"name": "half", "type": "double"},
        {"name": "text", "type": "string"},
        {"name": "maybe", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "texts", "type": {"type": "array", "items": "string"}},
        {"name": "table", "type": {"type": "array", "items": {"type": "array", "items": "int"}}},
        {"name": "counts", "type": {"type": "map", "values": ["null", "long"]}},
        {"name": "either", "type": ["null", "int", {"type": "record", "name": "S", "fields": [
            {"name": "x", "type": "bytes"}]}]},
    ],
}  # fmt: skip


def test_each_byte_of_a_block_is_changed_in_turn_and_noticed_or_a_legal_other_value():
    """Legal is what fastavro reads from the same bytes, to their end."""
    tree = parsed(_OF_ALL_KINDS)
    rows = [
        {
            "flag": True,
            "small": number,
            "big": -(10**12),
            "half": 0.5,
            "text": "ü text",
            "maybe": (1, "m"),
            "kind": "B",
            "mark": b"abc",
            "texts": ["a", "", "long " * 20],
            "table": [[1, 2], [], [300]],
            "counts": {"k": (1, 5), "n": (0, None)},
            "either": (2, {"x": b"\xff"}),
        }
        for number in range(3)
    ]
    records = [encoded(tree, row, seeded(2)) for row in rows]
    decoder = Decoder(tree)
    right = rows_of(decoder.decode(bodies(records)).batch)
    noticed, legal = 0, 0
    for place in range(len(records[1])):
        changed = [bytearray(records[1]) for _ in range(9)]
        for bit, each in enumerate(changed):
            each[place] ^= 1 << bit if bit < 8 else 0xFF
        mixed = [records[0]]
        for each in changed:
            mixed += [bytes(each), records[2]]
        found = decoder.decode(bodies(mixed))
        after = rows_of(found.batch)
        assert after[0] == right[0] and all(each == right[2] for each in after[2::2])
        damaged = {each.row: each.reason for each in found.damaged}
        assert damaged.keys() <= {*range(1, len(mixed), 2)} and all(damaged.values())
        for row in range(1, len(mixed), 2):
            if row in damaged:
                noticed += 1
                continue
            legal += 1
            read = in_columns(tree, read_by_fastavro(_OF_ALL_KINDS, mixed[row]))
            assert str(after[row]) == str(tuple(read.values()))
    assert noticed > 300 and legal > 300


@given(data=st.data())
def test_a_cut_or_prolonged_record_is_told(data):
    tree = parsed(data.draw(record_schemas(most_fields=4, depth=2)))
    row = data.draw(values(tree))
    good = encoded(tree, row)
    longer = [good, good + b"\0", good + good + b"\1"]
    shorter = [good[:size] for size in range(min(len(good), 40))]
    with lists_in_any_way(data.draw):
        found = decode(tree, bodies([*longer, *shorter, good]))
    assert [each.row for each in found.damaged] == list(range(1, len(longer) + len(shorter)))


@given(data=st.data(), garbage=st.lists(st.binary(max_size=60), min_size=1, max_size=5))
def test_random_bytes_are_values_or_told(data, garbage):
    tree = parsed(data.draw(record_schemas(most_fields=4, depth=2)))
    with lists_in_any_way(data.draw):
        found = decode(tree, bodies(garbage))
    found.batch.validate(full=True)
    with lists_in_any_way(data.draw):
        skipping = decode(tree, bodies(garbage), [])
    assert {each.row for each in skipping.damaged} <= {each.row for each in found.damaged}


def test_a_null_is_a_row_of_nulls_and_no_damage():
    tree = parsed(record_of("int"))
    found = decode(tree, pa.array([varint(1), None, varint(3)], pa.binary()))
    assert (found.batch.column(0).to_pylist(), found.damaged) == ([1, None, 3], ())


def test_a_slice_is_decoded_as_its_rows():
    tree = parsed(record_of("string"))
    records = [encoded(tree, {"f": text}) for text in ("a", "bc", "", "é")]
    found = decode(tree, bodies(records).slice(1, 2))
    assert found.batch.column(0).to_pylist() == ["bc", ""]


def test_few_bytes_never_become_many_values():
    """Nulls of a wide record in a list take a byte each; so many columns would take gigabytes."""
    fields = [{"name": f"c{number}", "type": "long"} for number in range(1000)]
    wide = {"type": "record", "name": "W", "fields": fields}
    tree = parsed(record_of({"type": "array", "items": ["null", wide]}))
    count = 500_000
    hostile = varint(count) + bytes(count) + b"\0"
    before = pa.total_allocated_bytes()
    found = decode(tree, bodies([b"\0", hostile, b"\0"]))
    assert [each.row for each in found.damaged] == [1]
    assert pa.total_allocated_bytes() - before < 64 << 20
    few = varint(5) + bytes(5) + b"\0"
    assert decode(tree, bodies([few])).damaged[0].row == 0
    assert decode(tree, bodies([varint(1) + b"\0" + b"\0"])).damaged == ()


@pytest.mark.parametrize(
    "item",
    ["string", "long", "double", ["null", "string"], {"type": "map", "values": "int"}],
)
def test_a_long_list_is_decoded_by_all_its_items(item):
    tree = parsed(record_of({"type": "array", "items": item}))
    made = {
        "string": lambda number: f"item {number}" * (number % 3),
        "long": lambda number: (-3) ** (number % 40),
        "double": float,
        "['null', 'string']": lambda number: (number % 2, str(number) if number % 2 else None),
        "{'type': 'map', 'values': 'int'}": lambda number: {str(number): number},
    }[str(item)]
    sizes = [0, 3, 5000, 1, 1999]
    rows = [{"f": [made(number) for number in range(size)]} for size in sizes]
    records = [encoded(tree, row, seeded(1)) for row in rows]
    records += [encoded(tree, row) for row in rows]
    found = decode(tree, bodies(records))
    assert found.damaged == ()
    expected = [
        [each[1] if isinstance(each, tuple) else each for each in row["f"]] for row in rows
    ] * 2
    column = found.batch.column(0).to_pylist()
    if isinstance(item, dict):
        column = [[dict(each) for each in row] for row in column]
    assert column == expected
    cut = [record[:-2] for record in records if len(record) > 2]
    assert len(decode(tree, bodies(cut)).damaged) == len(cut)
