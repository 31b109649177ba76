"""Columns from a JSON Schema: an object whose properties are the columns.

A property that is not `required`, or may be `null`, is nullable. Titles, descriptions and limits of
values are not kept; what decides on a type and can't be a column's is an error.
"""

from storage_engine.core.errors import ConfigError
from storage_engine.core.printable import printable
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.bounded_json import (
    JsonObject,
    JsonValue,
    json_list,
    json_object,
    json_text,
    load_json,
    shown,
)

_UNSUPPORTED = ("allOf", "not", "if", "then", "else", "dependentSchemas", "patternProperties")
_MAX_REFERENCES = 64
"""How many references may lead from one to the next."""


def parse_json_schema(text: str) -> list[types.ColumnSpec]:
    """Return the columns; ConfigError names what can't be one."""
    root = json_object(load_json(text, "the JSON Schema"), "the JSON Schema")
    return _JsonSchemaReader(root).columns()


class _JsonSchemaReader(types.TypeCount):
    """Walks the schema; each step is counted."""

    def __init__(self, root: JsonObject) -> None:
        super().__init__()
        self._root = root

    def columns(self) -> list[types.ColumnSpec]:
        content, _ = self._resolved(self._root, "the JSON Schema")
        if "properties" not in content:
            raise ConfigError("the JSON Schema has no 'properties': its columns belong there")
        return [types.ColumnSpec(*each) for each in self._properties(content, "", 1)]

    def _properties(
        self, content: JsonObject, path: str, depth: int
    ) -> list[tuple[str, types.ColumnType, bool]]:
        where = f"'{path}'" if path else "the JSON Schema"
        properties = json_object(content.get("properties"), f"'properties' of {where}")
        required = {
            json_text(each, f"an item of 'required' of {where}")
            for each in json_list(content.get("required", []), f"'required' of {where}")
        }
        unknown = sorted(required - set(properties))
        if unknown:
            raise ConfigError(
                f"'required' of {where} names '{printable(unknown[0][:80])}', which is no property"
            )
        found: list[tuple[str, types.ColumnType, bool]] = []
        for name, value in properties.items():
            inner = f"{path}.{name}"[-200:] if path else name
            column_type, nullable = self._type(value, printable(inner), depth)
            found.append((name, column_type, nullable or name not in required))
        return found

    def _type(self, value: JsonValue, path: str, depth: int) -> tuple[types.ColumnType, bool]:
        """Return the type, and whether it may be null."""
        self.step(depth)
        content, nullable = self._resolved(json_object(value, f"'{path}'"), f"'{path}'")
        for word in _UNSUPPORTED:
            if word in content:
                raise ConfigError(f"'{path}' has '{word}', which no column can keep: name one type")
        name, may_be_null = self._type_name(content, path)
        match name:
            case "boolean":
                column_type: types.ColumnType = types.BooleanColumn()
            case "integer":
                column_type = types.IntegerColumn(64)
            case "number":
                column_type = types.FloatColumn(64)
            case "string":
                column_type = _text_type(content)
            case "array":
                column_type = self._array(content, path, depth)
            case "object":
                column_type = self._object(content, path, depth)
            case _:
                raise ConfigError(
                    f"'{path}' has the type '{printable(name[:80])}': use boolean, integer, "
                    "number, string, array or object"
                )
        return column_type, nullable or may_be_null

    def _array(self, content: JsonObject, path: str, depth: int) -> types.ColumnType:
        if "items" not in content:
            raise ConfigError(f"'{path}' is an array without 'items': give it the elements' type")
        return types.ArrayColumn(*self._type(content["items"], f"{path}[]"[-200:], depth + 1))

    def _object(self, content: JsonObject, path: str, depth: int) -> types.ColumnType:
        values = content.get("additionalProperties")
        if content.get("properties"):
            fields = self._properties(content, path, depth + 1)
            types.check_field_names(name for name, _, _ in fields)
            return types.StructColumn(tuple(types.StructColumnField(*each) for each in fields))
        if isinstance(values, dict):
            self.step(depth + 1)
            value, nullable = self._type(values, f"{path}.*"[-200:], depth + 1)
            return types.MapColumn(types.StringColumn(), value, nullable)
        raise ConfigError(
            f"'{path}' is an object without 'properties': name them, or give the values' type in "
            "'additionalProperties'"
        )

    def _type_name(self, content: JsonObject, path: str) -> tuple[str, bool]:
        given = content.get("type")
        if given is None:
            given = _type_of_choices(content)
        if isinstance(given, str):
            return given, False
        names = [each for each in given if each != "null"] if isinstance(given, list) else []
        if len(names) == 1 and isinstance(names[0], str) and isinstance(given, list):
            return names[0], "null" in given
        raise ConfigError(
            f"'{path}' must have one 'type', perhaps with \"null\", and has {shown(given)}"
        )

    def _resolved(self, content: JsonObject, what: str) -> tuple[JsonObject, bool]:
        """Follow references, and choices between null and something else."""
        nullable = False
        for _ in range(_MAX_REFERENCES):
            choices = content.get("anyOf", content.get("oneOf"))
            if choices is not None:
                others = [
                    json_object(each, f"a choice of {what}")
                    for each in json_list(choices, f"the choices of {what}")
                ]
                others = [each for each in others if each.get("type") != "null"]
                if len(others) != 1:
                    raise ConfigError(f"{what} has {len(others)} types to choose from: name one")
                nullable = True
                content = others[0]
            elif "$ref" in content:
                content = self._referred(json_text(content["$ref"], f"'$ref' of {what}"), what)
            else:
                return content, nullable
        raise ConfigError(f"the references of {what} go in a circle: name its type")

    def _referred(self, reference: str, what: str) -> JsonObject:
        if not reference.startswith("#"):
            raise ConfigError(
                f"{what} refers to '{printable(reference[:80])}': only references into the same "
                "text, such as #/$defs/name, are followed"
            )
        place: JsonValue = self._root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            place = place.get(name) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            raise ConfigError(
                f"{what} refers to '{printable(reference[:80])}', which is not there: define it"
            )
        return place


def _text_type(content: JsonObject) -> types.ColumnType:
    if content.get("contentEncoding") == "base64":
        return types.BinaryColumn()
    match content.get("format"):
        case "date":
            return types.DateColumn()
        case "date-time":
            return types.TimestampColumn(with_zone=True)
        case _:
            return types.StringColumn()


def _type_of_choices(content: JsonObject) -> JsonValue:
    """Return the type of `enum` or `const` where all values are strings, or null."""
    values = content.get("enum", [content["const"]] if "const" in content else None)
    if not isinstance(values, list) or not any(isinstance(each, str) for each in values):
        return None
    if all(isinstance(each, str) for each in values):
        return "string"
    if all(isinstance(each, str) or each is None for each in values):
        return ["string", "null"]
    return None
