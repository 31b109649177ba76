"""Parameters and bodies are checked, and the error names the wrong one."""

from urllib.parse import parse_qsl

import pytest

from headrace_console.given import MOST_TEXT, Body, Params, json_object
from headrace_console.problem import ConsoleError


@pytest.mark.parametrize("text", ["x", "-1", "9" * 30, "1.0", "\u0661"])
def test_a_parameter_that_is_no_number_is_named(text: str) -> None:
    with pytest.raises(ConsoleError, match="parameter 'limit' must be a whole number"):
        Params([("limit", text)]).integer("limit", 1, most=500)


@pytest.mark.parametrize(
    ("query", "read", "complaint"),
    [
        ("limit=501", lambda p: p.integer("limit", 1, most=500), "from 0 to 500"),
        ("limit=-1", lambda p: p.integer("limit", 1), "from 0 to"),
        ("partition=1&partition=x", lambda p: p.integers("partition"), "'partition' must be"),
        ("partition=2147483648", lambda p: p.integers("partition"), "from 0 to 2147483647"),
        ("tail=yes", lambda p: p.flag("tail"), "'tail' must be 0 or 1"),
    ],
)
def test_a_parameter_out_of_its_range_is_named(query, read, complaint) -> None:
    with pytest.raises(ConsoleError, match=complaint):
        read(Params(parse_qsl(query)))


def test_an_empty_parameter_is_none_and_of_equal_ones_the_last_counts() -> None:
    params = Params([("a", "1"), ("a", "2"), ("b", "")])
    assert params.text("a") == "2" and params.all("a") == ["1", "2"]
    assert params.text("b") is None and params.text("c", "d") == "d"
    assert params.integer("b", 7) == 7 and not params.flag("b")


def test_a_parameter_that_is_too_long_is_named_by_its_beginning() -> None:
    with pytest.raises(ConsoleError, match=r"'x{50}' has more than 1000 characters"):
        Params([("x" * 60, "y" * (MOST_TEXT + 1))])


@pytest.mark.parametrize("data", [b"", b"[]", b"1", b'{"a": NaN}', b"\xff", b"[" * 100_000, b"{"])
def test_a_body_that_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(ConsoleError, match="the body must be a JSON object"):
        Body.parse(data)


def test_numbers_that_programs_write_without_being_json_are_null_where_that_is_wanted() -> None:
    assert json_object(b'{"a": NaN, "b": -Infinity}', nan_is_null=True) == {"a": None, "b": None}


@pytest.mark.parametrize(
    ("document", "read", "named"),
    [
        ({}, lambda b: b.text("name"), "'name' is missing; give a text"),
        ({"name": 5}, lambda b: b.text("name"), "'name' must be a text"),
        ({"name": "\ud800"}, lambda b: b.text("name"), "'name' must be a text"),
        ({"name": "xxx"}, lambda b: b.text("name", most=2), "'name' must be a text of at most 2"),
        ({"n": True}, lambda b: b.integer_or_none("n"), "'n' must be a whole number"),
        ({"n": 1.0}, lambda b: b.integer_or_none("n"), "'n' must be a whole number"),
        ({"n": 9}, lambda b: b.integer_or_none("n", most=8), "'n' must be .* from 0 to 8"),
        ({"l": "x"}, lambda b: b.texts("l"), "'l' must be a list"),
        ({"l": [1]}, lambda b: b.texts("l"), "'l' must be a list of texts"),
        ({"s": {"k": 1}}, lambda b: b.settings("s"), r"'s\.k' must be a text or null"),
        ({"o": []}, lambda b: b.part("o"), "'o' must be an object"),
        ({"o": {"i": 1}}, lambda b: b.part("o").text("i"), r"'o\.i' must be a text"),
        ({"p": [{}] * 3}, lambda b: b.parts("p", most=2), "'p' must be a list of at most 2"),
        ({"p": [{}, 1]}, lambda b: b.parts("p", most=2), r"'p\[1\]' must be an object"),
        ({"p": [{"t": 1}]}, lambda b: b.parts("p", most=2)[0].text("t"), r"'p\[0\]\.t' must be"),
        ({"confirm": "T"}, lambda b: b.confirm("t"), "'confirm' must be .* 't', typed again"),
    ],
)
def test_a_wrong_field_is_named_by_its_place(document, read, named) -> None:
    with pytest.raises(ConsoleError, match=named):
        read(Body(document))


def test_null_is_a_field_that_is_not_there() -> None:
    body = Body(dict.fromkeys("abcdef"))
    assert not body.has("a") and body.text_or_none("a") is None
    assert body.integer_or_none("b") is None and body.part("c") is None
    assert body.texts("d") == [] and body.parts("e", most=1) == [] and body.settings("f") == {}
