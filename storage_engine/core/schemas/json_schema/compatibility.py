"""Whether a reader with one JSON Schema takes all values that a writer with another may write.

What is not understood, such as `if`, must be the same in both.

Source: Confluent's documentation of the evolution of JSON Schemas (its strict policy).
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from storage_engine.core.schemas.compared import Pairs, Side
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.json_schema.arrays import arrays
from storage_engine.core.schemas.json_schema.documents import Part
from storage_engine.core.schemas.json_schema.limits import narrowed
from storage_engine.core.schemas.json_schema.lines import line
from storage_engine.core.schemas.json_schema.matching import largest_matching
from storage_engine.core.schemas.json_schema.objects import objects
from storage_engine.core.schemas.json_schema.shapes import (
    KEYWORDS_OF_TYPE,
    Anything,
    Combined,
    Not,
    Nothing,
    OneOfValues,
    Opaque,
    Shape,
    Shapes,
    Typed,
    as_text,
)

_Side: TypeAlias = Part | Shape


def json_incompatibilities(reader: Part, writer: Part, side: Side) -> list[str]:
    """Return why `reader` can't read data of `writer`, a line for each reason; []: it can."""
    pairs: Pairs[Shape] = Pairs(side)
    judge = JsonJudge(side, pairs)
    try:
        return pairs.judge(lambda: judge.compare(reader, writer, "#"))
    except InvalidSchemaError as error:
        return [side.line("TYPE_CHANGED", f"The schemas can't be compared: {error}")]


class JsonJudge:
    """Compares parts of the schemas. A path is that of the part, from `#` on."""

    def __init__(self, side: Side, pairs: Pairs[Shape]) -> None:
        self._side = side
        self._pairs = pairs
        self._shapes = Shapes()
        self._texts: dict[int, str] = {}

    def compare(self, reader: _Side, writer: _Side, path: str) -> list[str]:
        read, written = self._shapes.of(reader), self._shapes.of(writer)
        return self._pairs.compare(read, written, lambda: self._compare(read, written, path))

    def shape(self, part: _Side) -> Shape:
        return self._shapes.of(part)

    def line(self, error_type: str, path: str) -> list[str]:
        return [line(self._side, error_type, path or "#/")]

    def _compare(self, reader: Shape, writer: Shape, path: str) -> list[str]:
        if isinstance(writer, Nothing) or isinstance(reader, Anything):
            return []
        if isinstance(reader, Combined) != isinstance(writer, Combined):
            if self._fits_a_member(reader, writer, path):
                return []
            return self.line("TYPE_CHANGED", path)
        match reader, writer:
            case Typed(), Typed() if reader.name == writer.name:
                return self._typed(reader, writer, path)
            case OneOfValues(), OneOfValues():
                return self._values(reader, writer, path)
            case Combined(), Combined():
                return self._combined(reader, writer, path)
            case Not(), Not():
                if self.compare(writer.part, reader.part, f"{path}/not"):
                    return self.line("NOT_TYPE_EXTENDED", f"{path}/not")
                return []
            case Opaque(), Opaque() if self._same(reader, writer):
                return []
            case _:
                return self.line("TYPE_CHANGED", path)

    def _fits_a_member(self, reader: Shape, writer: Shape, path: str) -> bool:
        """Whether one member of the combined schema stands for all: any of the reader's, or one
        whose demands all of the writer's values meet."""
        if isinstance(reader, Combined):
            members: Iterable[tuple[_Side, _Side]] = ((each, writer) for each in reader.members)
            one_is_enough = len(reader.members) == 1 or reader.criterion != "allOf"
        elif isinstance(writer, Combined):
            members = ((reader, each) for each in writer.members)
            one_is_enough = len(writer.members) == 1 or writer.criterion == "allOf"
        else:
            return False
        return one_is_enough and any(not self.compare(*pair, path) for pair in members)

    def _typed(self, reader: Typed, writer: Typed, path: str) -> list[str]:
        self._pairs.charge(_size(reader) + _size(writer))
        found: list[str] = []
        if reader.demanded and not writer.demanded:
            found += self.line("TYPE_NARROWED", path)
        if reader.integer and not writer.integer:
            found += self.line("TYPE_NARROWED", path)
        keywords = KEYWORDS_OF_TYPE.get(reader.name, ())
        for name, keyword in narrowed(reader.keywords, writer.keywords, keywords):
            found += self.line(name, f"{path}/{keyword}")
        if reader.name == "object":
            found += objects(self, reader, writer, path)
        if reader.name == "array":
            found += arrays(self, reader, writer, path)
        return found

    def _values(self, reader: OneOfValues, writer: OneOfValues, path: str) -> list[str]:
        new, old = reader.values, writer.values
        self._pairs.charge(len(new) + len(old))
        if old <= new:
            return []
        name = "ENUM_ARRAY_NARROWED" if new <= old else "ENUM_ARRAY_CHANGED"
        return self.line(name, f"{path}/{'const' if reader.is_constant else 'enum'}")

    def _combined(self, reader: Combined, writer: Combined, path: str) -> list[str]:
        if not _may_follow(reader, writer):
            return self.line("COMBINED_TYPE_CHANGED", path)
        new, old = self._distinct(reader.members), self._distinct(writer.members)
        found: list[str] = []
        if len(old) < len(new) and reader.criterion == "allOf":
            found += self.line("PRODUCT_TYPE_EXTENDED", path)
        if len(old) > len(new) and writer.criterion != "allOf":
            found += self.line("SUM_TYPE_NARROWED", path)
        edges = [
            [
                index
                for index, after in enumerate(new)
                if not self.compare(after, before, f"{path}/{writer.criterion}/{place}")
            ]
            for place, before in enumerate(old)
        ]
        if largest_matching(edges, len(new)) < min(len(old), len(new)):
            found += self.line("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path)
        return found

    def _distinct(self, members: Sequence[_Side]) -> list[_Side]:
        """Return the members without those that are written twice."""
        found: dict[str, _Side] = {}
        for each in members:
            found.setdefault(self._text(each) if isinstance(each, Part) else f"{id(each)}", each)
        return [*found.values()]

    def _text(self, part: Part) -> str:
        """Return the JSON of a part. The parts live as long as their shapes, which are kept."""
        if id(part) not in self._texts:
            self._texts[id(part)] = as_text(part.value)
        return self._texts[id(part)]

    def _same(self, reader: Opaque, writer: Opaque) -> bool:
        """Whether what is not understood is the same, and does not depend on anything else."""
        text = as_text(reader.keywords)
        return 'ef"' not in text and text == as_text(writer.keywords)


def _size(typed: Typed) -> int:
    """Return how much there is to look at beside the parts inside: patterns are tried on names."""
    sizes = {
        name: len(each) for name, each in typed.keywords.items() if isinstance(each, dict | list)
    }
    return sum(sizes.values()) + sizes.get("patternProperties", 0) * sizes.get("properties", 0)


def _may_follow(reader: Combined, writer: Combined) -> bool:
    one_new, one_old = len(reader.members) == 1, len(writer.members) == 1
    return (
        reader.criterion == writer.criterion
        or reader.criterion == "anyOf"
        or (one_old and (one_new or reader.criterion == "oneOf"))
        or (one_new and writer.criterion == "allOf")
    )
