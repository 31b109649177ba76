"""Messages of a Protobuf schema as JSON text.

The names of fields are those of the schema, and numbers of 64 bits are strings, as Protobuf's JSON
has it. Fields without a value are left out.
"""

from collections.abc import Iterator, Sequence

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error, MessageToJson
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from storage_engine.core.printable import printable
from storage_engine.core.schemas.protobuf.parsed import ParsedProtobuf

_FILE = "\n"
"""The name of the schema's own file, which nobody can import."""
_CHARS_BESIDE_NAMES = 32


class DamagedMessageError(Exception):
    """Why a message can't be read, in one line."""


class MessageTexts:
    """Reads messages of one schema."""

    def __init__(self, parsed: ParsedProtobuf) -> None:
        self._file = parsed.file
        self._pool = DescriptorPool()
        own = FileDescriptorProto()
        own.CopyFrom(parsed.file)
        own.name = _FILE
        for each in (*parsed.imported, own):
            self._pool.AddSerializedFile(each.SerializeToString())
        files = (*parsed.imported, parsed.file)
        self._longest_name = max((len(each) for file in files for each in _names(file)), default=0)

    def text(self, place: Sequence[int], body: bytes, most_chars: int) -> str:
        """Return the JSON of a message in one line. `place`: the number of its type in the file,
        and of each type within it that leads there. DamagedMessageError."""
        # Two bytes may be a field with a name.
        if len(body) * (self._longest_name + _CHARS_BESIDE_NAMES) // 2 > most_chars:
            raise DamagedMessageError(f"its JSON could have more than {most_chars >> 20} MiB")
        kind = self._pool.FindMessageTypeByName(self._name_of(place))
        try:
            message = GetMessageClass(kind).FromString(body)
            return MessageToJson(
                message,
                preserving_proto_field_name=True,
                indent=None,
                descriptor_pool=self._pool,
                ensure_ascii=False,
            )
        except DecodeError:
            name = printable(kind.full_name[:80])
            raise DamagedMessageError(f"its bytes are no message of {name}") from None
        except (Error, TypeError, ValueError, RecursionError) as error:
            line = printable(" ".join(str(error).split())[:200])
            raise DamagedMessageError(f"it has no form in JSON: {line}") from None

    def _name_of(self, place: Sequence[int]) -> str:
        inside, names = self._file.message_type, []
        for number in place:
            if not 0 <= number < len(inside):
                raise DamagedMessageError(
                    f"it is of message {number}, and the schema has {len(inside)} there"
                )
            names.append(inside[number].name)
            inside = inside[number].nested_type
        return ".".join([*([self._file.package] if self._file.package else []), *names])


def _names(file: FileDescriptorProto) -> Iterator[str]:
    """Yield the names that stand in JSON: of fields, of symbols of enums, and of messages."""
    waiting = list(file.message_type)
    enums: list[EnumDescriptorProto] = list(file.enum_type)
    while waiting:
        message: DescriptorProto = waiting.pop()
        yield message.name
        yield from (each.name for each in message.field)
        enums += message.enum_type
        waiting += message.nested_type
    yield from (symbol.name for each in enums for symbol in each.value)
