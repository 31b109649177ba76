"""Keys and values of a coordinator's log behind their versions, and errors that name the log."""

from dataclasses import dataclass
from functools import partial

import pytest

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.apis.fields import int32, string
from storage_engine.protocol.apis.struct_codec import read_struct
from storage_engine.protocol.state.state_fields import StateFields


@dataclass(frozen=True, slots=True)
class Key:
    name: str = string()
    number: int = int32()


FIELDS = StateFields("log of examples", {0: Key, 1: Key})


def test_the_last_version_of_a_key_is_written_and_all_are_read():
    data = FIELDS.encode_key(Key("k", 5))
    assert data == b"\0\1" + b"\0\1k" + b"\0\0\0\5"
    assert FIELDS.decode_key(data) == FIELDS.decode_key(b"\0\0" + data[2:]) == Key("k", 5)
    assert FIELDS.decode_key(b"\0\2" + data[2:]) is None, "a later version wrote it"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "a key in the log of examples is damaged: it has 0 bytes"),
        (b"\0", "it has 1 bytes"),
        (b"\0\1", "it ends too early"),
        (b"\0\1" + b"\0\1k" + b"\0\0\0", "it ends too early"),
        (b"\0\1" + b"\0\1\xff" + b"\0\0\0\5", "a string is not UTF-8"),
        (b"\0\1" + b"\0\1k" + b"\0\0\0\5" + b"x", "1 bytes are left over"),
        (b"\0\1" + b"\x7f\xff", "a length says"),
    ],
)
def test_what_is_no_key_is_damage(data, reason):
    with pytest.raises(CorruptRecordError, match=reason):
        FIELDS.decode_key(data)


def test_a_value_is_read_to_its_end():
    data = FIELDS.encode(3, Key("k", 5), flexible=True)
    read = partial(read_struct, Key, 3)
    assert FIELDS.version(data, "value") == 3
    assert FIELDS.decoded("a value", data, True, read) == Key("k", 5)
    with pytest.raises(CorruptRecordError, match="a value in the log of examples is damaged"):
        FIELDS.decoded("a value", data[:-1], True, read)
