"""The names of differences between two JSON Schemas, and how they are told.

Source: the words of Confluent's registry.
"""

from storage_engine.core.printable import printable
from storage_engine.core.schemas.compared import Side

_ABSENT = (
    "The keyword at path '{path}' in the {reader} schema is not present in the {writer} schema"
)
_MORE = (
    "The value at path '{path}' in the {reader} schema is more than its value in the {writer} "
    "schema"
)
_LESS = (
    "The value at path '{path}' in the {reader} schema is less than its value in the {writer} "
    "schema"
)
_OTHER = "The value at path '{path}' is different between the {reader} and {writer} schema"
_FEWER = (
    "An array or combined type at path '{path}' has fewer elements in the {reader} schema than the "
    "{writer} schema"
)
_EXTENDED = (
    "An array or combined type at path '{path}' has more elements in the {reader} schema than the "
    "{writer} schema"
)
_TYPE = "A type at path '{path}' is different between the {reader} schema and the {writer} schema"
_OPEN = (
    "The {writer} schema has an open content model, and the {reader} schema has a property or item "
    "at path '{path}' which is missing in it"
)
_REQUIRED = (
    "The {reader} schema has a required property at path '{path}' which is missing in the {writer} "
    "schema"
)
_CLOSED = (
    "The {reader} schema has a closed content model and is missing a property or item present at "
    "path '{path}' in the {writer} schema"
)
_REMOVED = (
    "A property or item is missing in the {reader} schema but present at path '{path}' in the "
    "{writer} schema and is not covered by its partially open content model"
)
_ADDED = (
    "The {reader} schema has a property or item at path '{path}' which is missing in the {writer} "
    "schema and is not covered by its partially open content model"
)

_BY_ENDING = {
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": _REQUIRED,
    "ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "REMOVED_FROM_CLOSED_CONTENT_MODEL": _CLOSED,
    "REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _REMOVED,
    "ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _ADDED,
    "ADDITIONAL_ITEMS_NARROWED": _FEWER,
    "PROPERTIES_NARROWED": _FEWER,
    "UNEVALUATED_ITEMS_NARROWED": _FEWER,
    "ENUM_ARRAY_NARROWED": _FEWER,
    "SUM_TYPE_NARROWED": _FEWER,
    "TYPE_EXTENDED": _EXTENDED,
    "DEPENDENCY_ARRAY_EXTENDED": _EXTENDED,
    "PATTERN_CHANGED": _OTHER,
    "MULTIPLE_OF_CHANGED": _OTHER,
    "FORMAT_CHANGED": _OTHER,
    "DEPENDENCY_ARRAY_CHANGED": _OTHER,
    "_ADDED": _ABSENT,
    "_REMOVED": _ABSENT,
    "_INCREASED": _MORE,
    "_EXPANDED": _MORE,
    "_DECREASED": _LESS,
}


def line(side: Side, error_type: str, path: str) -> str:
    """Return the line of a difference at a path such as `#/properties/a`."""
    text = next((each for end, each in _BY_ENDING.items() if error_type.endswith(end)), _TYPE)
    shown = printable(path[:300])
    return side.line(error_type, text.format(path=shown, reader=side.reader, writer=side.writer))
