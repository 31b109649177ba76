"""JSON that others wrote: a value of the kind that is expected, or one short line."""

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.core.typed import bounded_json
from storage_engine.core.typed.bounded_json import MAX_SCHEMA_BYTES, load_json, only_fields

LARGEST = "é" * (MAX_SCHEMA_BYTES // 2 - 1)


def test_a_text_of_the_largest_size_is_read():
    assert load_json(f'"{LARGEST}"', "the text") == LARGEST


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f'"{LARGEST}e"', "has more than 256 KiB"),
        ("[" * 200_000, "is nested too deep"),
        ("9" * 5000, "is no JSON"),
        ("{\u2028", "is no JSON"),
        ('"\ud800"', "has half a character in it"),
    ],
)
def test_a_text_that_is_no_value_is_refused(text, problem):
    with pytest.raises(ConfigError, match=rf"^the text {problem}.*$") as caught:
        load_json(text, "the text")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("integer", True, "a whole number, and is true"),
        ("integer", 1.0, "a whole number, and is 1.0"),
        ("boolean", 0, "true or false, and is 0"),
        ("text", -(10**30), "a string, and is a very large number"),
        ("text", {}, "a string, and is an object"),
        ("object", [], "a JSON object, and is a list"),
        ("list", "a\n" + "b" * 1000, r"a JSON list, and is 'a\\nb{78}'"),
    ],
)
def test_a_value_of_another_kind_is_shown_in_one_short_line(kind, value, shown):
    with pytest.raises(ConfigError, match=rf"^it must be {shown}$"):
        getattr(bounded_json, f"json_{kind}")(value, "it")


def test_a_field_that_nobody_would_read_is_refused():
    only_fields({"a": 1}, ("b", "a"), "it")
    with pytest.raises(ConfigError, match="it has a field 'c', which is none of a, b"):
        only_fields({"a": 1, "c": 2}, ("b", "a"), "it")
