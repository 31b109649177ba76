"""Arrow types: those that the document promises, and which of them have the same buffers."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from storage_engine.core.typed.ddl import parse_type
from storage_engine.protocol.typed.arrow_types import arrow_type, same_layout

DOCUMENT = Path(__file__).parents[5] / "docs" / "typed-topics.md"
STRUCT = [("x", pa.int64()), ("y", pa.string())]


def test_each_type_is_stored_as_the_document_says():
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.split("| column type | Arrow type |", 1)[1].split("\n\n", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert len(rows) == 10
    for columns, arrow_names, _ in rows[:-1]:
        names = re.split(r", (?![^\[(]*[\])])", arrow_names)
        for column, name in zip(columns.split(", "), names, strict=True):
            ddl, name = (each.replace("(p,s)", "(9,2)") for each in (column, name))
            name = name.replace("UTC", "tz=UTC").replace("(p, s)", "(9, 2)")
            assert str(arrow_type(parse_type(ddl))).removesuffix("[day]") == name, column


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (pa.list_(pa.field("item", pa.struct(STRUCT), nullable=False)), True),
        (pa.large_list(pa.struct(STRUCT)), False),
        (pa.list_(pa.struct(STRUCT[::-1])), False),
        (pa.list_(pa.struct([("x", pa.int64()), ("z", pa.string())])), False),
        (pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())])), False),
    ],
    ids=["other names", "long offsets", "order", "names of fields", "narrower"],
)
def test_types_that_differ_in_nulls_and_names_of_parts_have_the_same_buffers(other, expected):
    assert same_layout(pa.list_(pa.struct(STRUCT)), other) is expected
