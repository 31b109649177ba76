"""Keywords with a value of their own: a limit may be loosened, and other values may be left out."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TypeGuard

from storage_engine.core.schemas.json_schema.shapes import as_text
from storage_engine.core.schemas.json_text import JsonObject, JsonValue

_UPPER = {
    "maxLength": "MAX_LENGTH",
    "maximum": "MAXIMUM",
    "exclusiveMaximum": "EXCLUSIVE_MAXIMUM",
    "maxProperties": "MAX_PROPERTIES",
    "maxItems": "MAX_ITEMS",
    "maxContains": "MAX_CONTAINS",
}
_LOWER = {
    "minLength": "MIN_LENGTH",
    "minimum": "MINIMUM",
    "exclusiveMinimum": "EXCLUSIVE_MINIMUM",
    "minProperties": "MIN_PROPERTIES",
    "minItems": "MIN_ITEMS",
}
_EQUAL = {
    "pattern": "PATTERN",
    "format": "FORMAT",
    "contentEncoding": "CONTENT_ENCODING",
    "contentMediaType": "CONTENT_MEDIA_TYPE",
}


def narrowed(
    reader: JsonObject, writer: JsonObject, keywords: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield what the reader's keywords refuse and the writer's do not: the name of the difference
    and the keyword."""
    for keyword in (*keywords, "format"):
        if keyword not in reader or (
            keyword in writer and as_text(reader[keyword]) == as_text(writer[keyword])
        ):
            continue
        new, old = reader[keyword], writer.get(keyword)
        if name := _UPPER.get(keyword) or _LOWER.get(keyword):
            is_lower = keyword in _LOWER
            if old is None:
                yield f"{name}_ADDED", keyword
            elif not (_is_number(new) and _is_number(old)):
                # Draft 4 has true and false here.
                yield f"{name}_CHANGED", keyword
            elif is_lower and new > old:
                yield f"{name}_INCREASED", keyword
            elif not is_lower and new < old:
                yield f"{name}_DECREASED", keyword
        elif keyword == "multipleOf":
            yield from _multiples(new, old)
        elif name := _EQUAL.get(keyword):
            yield f"{name}_ADDED" if old is None else f"{name}_CHANGED", keyword


def _multiples(new: JsonValue, old: JsonValue) -> Iterator[tuple[str, str]]:
    if old is None:
        yield "MULTIPLE_OF_ADDED", "multipleOf"
    elif _is_number(new) and _is_number(old) and new > 0 and old > 0:
        before, after = Fraction(str(old)), Fraction(str(new))
        if before % after:
            name = "MULTIPLE_OF_CHANGED" if after % before else "MULTIPLE_OF_EXPANDED"
            yield name, "multipleOf"
    else:
        yield "MULTIPLE_OF_CHANGED", "multipleOf"


def _is_number(value: JsonValue) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
