"""Values as a browser gets them: cut, marked, and safe to parse."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from headrace_console.http.routes import encode
from headrace_console.records.shown_values import (
    MOST_DEPTH,
    SAFE_INTEGER,
    shown_cell,
    shown_value,
)
from storage_engine.tests.sampling import examples


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode), st.integers(1, 64))
@settings(max_examples=examples(500), deadline=None)
def test_any_bytes_become_a_short_document_that_json_can_hold(data: bytes, most: int) -> None:
    document = shown_value(data, most, pretty=True)
    assert document is not None
    again = json.loads(encode(document))
    assert again["bytes"] == len(data)
    assert len(document["text"]) <= most
    if document["kind"] == "json":
        assert not document["cut"] and json.loads(document["text"]) == json.loads(data)
    if document["kind"] == "text" and not document["cut"]:
        assert document["text"].encode() == data


def test_a_character_that_the_limit_cuts_is_not_taken_for_damage() -> None:
    for most in range(1, 8):
        document = shown_value("äö€𝄞".encode() * 5, most)
        assert document is not None
        assert not document["invalid_utf8"] and document["cut"]
        assert document["text"] == ("äö€𝄞" * 5)[:most]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[" * MOST_DEPTH + "]" * MOST_DEPTH, "json"),
        ("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), "text"),
        ('{"a": "[[[[' + "[" * 100 + '"}', "json"),
        ('{"a": NaN}', "text"),
        ('{"a": 1} x', "text"),
        ("12", "text"),
        ("[" + "1" * 5_000 + "]", "text"),
    ],
)
def test_only_what_a_page_can_walk_over_is_called_json(text: str, kind: str) -> None:
    document = shown_value(text.encode(), 10_000)
    assert document is not None
    assert document["kind"] == kind


def test_numbers_that_javascript_would_change_are_texts() -> None:
    assert shown_cell(SAFE_INTEGER) == (SAFE_INTEGER, False)
    assert shown_cell(SAFE_INTEGER + 1) == (str(SAFE_INTEGER + 1), False)
    assert shown_cell([[[[1]]]]) == ([[["…"]]], True)
    assert shown_cell({"a": "x" * 300}) == ({"a": "x" * 256}, True)
