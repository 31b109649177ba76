"""Whether a reader with one Avro schema can read what a writer with another has written.

Logical types do not count.

Source: the specification of Apache Avro 1.12, schema resolution; the words of Confluent's registry.
"""

from storage_engine.core.schemas.avro import schema as avro
from storage_engine.core.schemas.avro.parse import kind_of
from storage_engine.core.schemas.compared import Pairs, Side

_PROMOTIONS: dict[str, tuple[str, ...]] = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
"""The types that a reader of one takes beside the type itself."""


def avro_incompatibilities(
    reader: avro.AvroSchema, writer: avro.AvroSchema, side: Side
) -> list[str]:
    """Return why `reader` can't read data of `writer`, a line for each reason; []: it can."""
    pairs: Pairs[avro.AvroType] = Pairs(side)
    judge = _AvroJudge(reader, writer, side, pairs)
    return pairs.judge(lambda: judge.compare(reader.root, writer.root, ""))


class _AvroJudge:
    """Compares types. A path is that of the reader's type, as a registry writes it."""

    def __init__(
        self,
        reader: avro.AvroSchema,
        writer: avro.AvroSchema,
        side: Side,
        pairs: Pairs[avro.AvroType],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._side = side
        self._pairs = pairs

    def compare(self, reader: avro.AvroType, writer: avro.AvroType, path: str) -> list[str]:
        read, written = self._reader.resolve(reader), self._writer.resolve(writer)
        return self._pairs.compare(read, written, lambda: self._compare(read, written, path))

    def _compare(self, reader: avro.AvroType, writer: avro.AvroType, path: str) -> list[str]:
        match reader, writer:
            case avro.Union(), avro.Union():
                return self._unions(reader, writer, path)
            case _, avro.Union():
                return [
                    line for each in writer.branches for line in self.compare(reader, each, path)
                ]
            case avro.Union(), _:
                if any(not self.compare(each, writer, path) for each in reader.branches):
                    return []
                return [self._missing_branch(writer, path)]
            case avro.Array(), avro.Array():
                return self.compare(reader.items, writer.items, f"{path}/items")
            case avro.Map(), avro.Map():
                return self.compare(reader.values, writer.values, f"{path}/values")
            case avro.Record(), avro.Record():
                return self._names(reader, writer, path) or self._fields(reader, writer, path)
            case avro.Enum(), avro.Enum():
                return self._names(reader, writer, path) or self._symbols(reader, writer, path)
            case avro.Fixed(), avro.Fixed():
                return self._names(reader, writer, path) or self._sizes(reader, writer, path)
            case avro.Primitive(), avro.Primitive():
                if reader.name == writer.name or writer.name in _PROMOTIONS.get(reader.name, ()):
                    return []
        return [self._type_mismatch(reader, writer, path)]

    def _unions(self, reader: avro.Union, writer: avro.Union, path: str) -> list[str]:
        return [
            self._missing_branch(self._writer.resolve(branch), f"{path}/{index}")
            for index, branch in enumerate(writer.branches)
            if self.compare(reader, branch, f"{path}/{index}")
        ]

    def _fields(self, reader: avro.Record, writer: avro.Record, path: str) -> list[str]:
        self._pairs.charge(len(reader.fields) + len(writer.fields))
        written = {field.name: field for field in writer.fields}
        found: list[str] = []
        for index, field in enumerate(reader.fields):
            inner = f"{path}/fields/{index}"
            names = [each for each in (field.name, *field.aliases) if each in written]
            if names:
                found += self.compare(field.type, written[names[0]].type, f"{inner}/type")
            elif field.default is avro.NO_DEFAULT:
                found.append(self._missing_default(field, inner))
        return found

    def _names(self, reader: avro.NamedType, writer: avro.NamedType, path: str) -> list[str]:
        if reader.name == writer.name or writer.full_name in reader.aliases:
            return []
        description = f"The name of the schema has changed (path '{path}/name')"
        return [
            self._side.line("NAME_MISMATCH", description, f"expected: {writer.full_name}"),
        ]

    def _symbols(self, reader: avro.Enum, writer: avro.Enum, path: str) -> list[str]:
        self._pairs.charge(len(reader.symbols) + len(writer.symbols))
        missing = sorted(set(writer.symbols) - set(reader.symbols))
        if not missing or reader.default is not None:
            return []
        shown = f"[{', '.join(missing)}]"
        side = self._side
        description = (
            f"The {side.reader} schema is missing enum symbols '{shown}' at path "
            f"'{path}/symbols' in the {side.writer} schema"
        )
        return [side.line("MISSING_ENUM_SYMBOLS", description, shown)]

    def _sizes(self, reader: avro.Fixed, writer: avro.Fixed, path: str) -> list[str]:
        if reader.size == writer.size:
            return []
        side = self._side
        description = (
            f"The size of FIXED type field at path '{path}/size' in the {side.reader} schema does "
            f"not match with the {side.writer} schema"
        )
        info = f"expected: {writer.size}, found: {reader.size}"
        return [side.line("FIXED_SIZE_MISMATCH", description, info)]

    def _type_mismatch(self, reader: avro.AvroType, writer: avro.AvroType, path: str) -> str:
        side = self._side
        description = (
            f"The type (path '{path or '/'}') of a field in the {side.reader} schema does not "
            f"match with the {side.writer} schema"
        )
        info = f"reader type: {_kind(reader)} not compatible with writer type: {_kind(writer)}"
        return side.line("TYPE_MISMATCH", description, info)

    def _missing_branch(self, writer: avro.AvroType, path: str) -> str:
        side = self._side
        description = (
            f"The {side.reader} schema is missing a type inside a union field at path "
            f"'{path or '/'}' in the {side.writer} schema"
        )
        info = f"reader union lacking writer type: {_kind(writer)}"
        return side.line("MISSING_UNION_BRANCH", description, info)

    def _missing_default(self, field: avro.Field, path: str) -> str:
        side = self._side
        description = (
            f"The field '{field.name}' at path '{path}' in the {side.reader} schema has no default "
            f"value and is missing in the {side.writer} schema"
        )
        return side.line("READER_FIELD_MISSING_DEFAULT_VALUE", description, field.name)


def _kind(avro_type: avro.AvroType) -> str:
    match avro_type:
        case avro.Record():
            return "RECORD"
        case avro.Enum():
            return "ENUM"
        case avro.Fixed():
            return "FIXED"
        case _:
            return kind_of(avro_type).upper()
