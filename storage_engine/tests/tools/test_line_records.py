"""Lines to Arrow arrays and back."""

import random

import pyarrow as pa
import pytest

from storage_engine.tools.errors import CommandError
from storage_engine.tools.line_records import LineSplitter, join_lines, split_keys


def _lines(chunks: list[bytes], max_line_bytes: int = 1000) -> list[bytes]:
    splitter = LineSplitter(max_line_bytes=max_line_bytes)
    arrays = [splitter.feed(chunk) for chunk in chunks]
    arrays.append(splitter.finish())
    lines = [line for array in arrays if array is not None for line in array.to_pylist()]
    assert splitter.lines_so_far == len(lines)
    return lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"a\r\nb\n", [b"a\r", b"b"]),
        (b"\x00\xff\n\xfe", [b"\x00\xff", b"\xfe"]),
    ],
)
def test_lines_end_with_a_newline_or_with_the_input(text: bytes, lines: list[bytes]) -> None:
    assert _lines([text]) == lines


def test_where_the_chunks_are_cut_makes_no_difference() -> None:
    chance = random.Random(7)
    text = bytes(chance.choice(b"ab\n") for _ in range(500)) + b"x"
    for _ in range(50):
        cuts = sorted(chance.sample(range(1, len(text)), 5))
        chunks = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert _lines(chunks) == text.split(b"\n")


def test_a_line_without_end_is_refused_with_its_number() -> None:
    with pytest.raises(CommandError, match="line 2 of the input is longer than 10 bytes"):
        _lines([b"a\n", b"b" * 8, b"b" * 8], max_line_bytes=10)


def test_the_first_separator_parts_key_and_value() -> None:
    lines = pa.array([b"k=>v=>w", b"=>", b"k=>"], pa.binary())
    keys, values = split_keys(lines, b"=>")
    assert keys.to_pylist() == [b"k", b"", b"k"]
    assert values.to_pylist() == [b"v=>w", b"", b""]


def test_a_separator_may_be_bytes_that_are_no_text() -> None:
    keys, values = split_keys(pa.array([b"a\xffb"], pa.binary()), b"\xff")
    assert (keys.to_pylist(), values.to_pylist()) == ([b"a"], [b"b"])


def test_keys_and_values_end_before_the_first_line_without_a_separator() -> None:
    lines = pa.array([b"a:b", b"c:d", b"e", b"f:g"], pa.binary())
    keys, values = split_keys(lines, b":")
    assert (keys.to_pylist(), values.to_pylist()) == ([b"a", b"c"], [b"b", b"d"])
    keys, values = split_keys(lines.slice(2), b":")
    assert (keys.to_pylist(), values.to_pylist()) == ([], [])


def test_values_are_joined_to_lines_as_they_are() -> None:
    values = pa.array([b"a", b"", None, b"\xff\n"], pa.binary())
    assert join_lines(values) == b"a\n\n\n\xff\n\n"
    assert join_lines(values.slice(1, 2)) == b"\n\n"
    assert join_lines(pa.array([], pa.binary())) == b""
