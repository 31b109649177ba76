"""Fields of messages on the wire: the versions that have them, nulls, tags, and defaults."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from storage_engine.core.errors import InvalidRequestError
from storage_engine.protocol.apis.fields import (
    binary,
    int16,
    nullable_int32s,
    nullable_name,
    nullable_string,
    nullable_struct,
    string,
)
from storage_engine.protocol.apis.struct_codec import read_struct, write_struct
from storage_engine.protocol.apis.wire import Reader, Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    number: int = int16()


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """`old` is gone from version 2 on, `new` comes with it."""

    old: int = int16(0, 1)
    new: int = int16(2, default=-1)
    name: str | None = nullable_name(null_from=1)
    text: str | None = nullable_string(1, null_from=2)
    numbers: Sequence[int] | None = nullable_int32s(2, is_null=True)
    inner: Inner | None = nullable_struct(Inner, 2)  # noqa: RUF009
    tagged: int = int16(2, default=7, tag=0)


def written(version: int, example: Example) -> bytes:
    writer = Writer(flexible=version >= 2)
    write_struct(writer, version, example)
    return bytes(writer.data)


def read(version: int, data: bytes) -> Example:
    reader = Reader(memoryview(data), flexible=version >= 2)
    found = read_struct(Example, version, reader)
    reader.finish()
    return found


def test_a_version_has_its_fields_alone_and_defaults_for_the_others() -> None:
    example = Example(old=1, new=2, name="n", text="t", numbers=[5], inner=Inner(number=3))
    assert written(0, example) == b"\0\1" + b"\0\1n"
    assert read(0, written(0, example)) == Example(old=1, name="n")
    assert read(1, written(1, example)) == Example(old=1, name="n", text="t")
    newest = Example(new=2, name="n", text="t", numbers=[5], inner=Inner(number=3))
    assert read(2, written(2, example)) == newest


def test_null_is_written_where_a_version_knows_it() -> None:
    nothing = Example(text=None, inner=None)
    assert written(0, nothing) == b"\0\0" + b"\0\0", "a name is empty before it may be null"
    assert read(2, written(2, nothing)) == nothing
    with pytest.raises(InvalidRequestError):
        read(1, b"\0\1" + b"\xff\xff" + b"\xff\xff")


def test_a_tagged_field_is_left_out_where_it_has_its_default() -> None:
    without, has_it = written(2, Example()), written(2, Example(tagged=8))
    assert without[-1] == 0
    assert has_it == without[:-1] + b"\1" + b"\0\2" + b"\0\x08"
    assert read(2, has_it).tagged == 8


@pytest.mark.parametrize("marker", [0, 2, -2])
def test_a_struct_that_may_be_null_begins_with_one_of_two_markers(marker: int) -> None:
    data = bytearray(written(2, Example()))
    assert data[-2] == 0xFF
    data[-2] = marker % 256
    with pytest.raises(InvalidRequestError, match=f"starts with {marker}, not with -1 or 1"):
        read(2, bytes(data))


def test_bytes_are_not_shown() -> None:
    @dataclass(slots=True, kw_only=True)
    class Secret:
        user: str = string()
        password: bytes = binary()

    assert "hidden" not in repr(Secret(user="alice", password=b"hidden"))
