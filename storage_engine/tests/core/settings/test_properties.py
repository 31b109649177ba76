"""Java's `.properties` syntax."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.properties import parse_properties


def parse(text: str) -> dict[str, str]:
    return parse_properties(text, source="f")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# c\n ! c\n\n \t\n", {}),
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a \t = \t b  ", {"a": "b  "}),
        ("a", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a = :b", {"a": ":b"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\r\n   c\r\nd=e\re=f", {"a": "bc", "d": "e", "e": "f"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=\\\n\nb=c", {"a": "", "b": "c"}),
        ("a=b\\\n# no comment", {"a": "b# no comment"}),
        ("\\\na=b", {"a": "b"}),
        ("a=b\\", {"a": "b"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u0041\\u00e9", {"a": "Aé"}),
        ("a=é", {"a": "é"}),
        ("a=x\u2028y\x0bz", {"a": "x\u2028y\x0bz"}),
        ("a=b # no comment", {"a": "b # no comment"}),
    ],
)
def test_syntax(text: str, expected: dict[str, str]) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\u", "x=1\nb=\\u+123"])
def test_a_damaged_escape_names_the_line(text: str) -> None:
    line = text.count("\n") + 1
    with pytest.raises(ConfigError, match=rf"^f, line {line}: .* needs four hexadecimal digits$"):
        parse(text)


def _escape(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" for c in text)


_TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))


@given(st.dictionaries(_TEXT.filter(bool), _TEXT))
def test_what_is_written_with_escapes_is_read_again(settings: dict[str, str]) -> None:
    text = "\n".join(f"{_escape(key)}={_escape(value)}" for key, value in settings.items())
    assert parse(text) == settings


@given(st.text())
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        parse(text)
    except ConfigError as error:
        assert "\n" not in str(error)
