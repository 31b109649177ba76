"""Objects: properties that come and go in open, closed and partially open content models.

Source: Confluent's documentation of the evolution of JSON Schemas.
"""

from typing import Protocol

import re2

from storage_engine.core.schemas.json_schema.documents import Part
from storage_engine.core.schemas.json_schema.shapes import (
    ANYTHING,
    Anything,
    Combined,
    Nothing,
    Shape,
    Typed,
)
from storage_engine.core.schemas.json_text import JsonObject, JsonValue


class Judge(Protocol):
    """Compares parts that stand inside of others."""

    def compare(self, reader: Part | Shape, writer: Part | Shape, path: str) -> list[str]: ...
    def shape(self, part: Part | Shape) -> Shape: ...
    def line(self, error_type: str, path: str) -> list[str]: ...


def objects(judge: Judge, reader: Typed, writer: Typed, path: str) -> list[str]:
    """Return why the reader's objects are fewer than the writer's."""
    new, old = ContentModel(judge, reader), ContentModel(judge, writer)
    return [
        *_properties(judge, new, old, f"{path}/properties"),
        *_required(judge, new, old, f"{path}/required"),
        *_patterns(judge, new, old, f"{path}/patternProperties"),
        *_rest(judge, new, old, path),
        *_names(judge, reader, writer, f"{path}/propertyNames"),
        *_dependencies(judge, reader, writer, f"{path}/dependencies"),
    ]


class ContentModel:
    """Which properties an object may have: those with a schema, and what holds for the rest."""

    def __init__(self, judge: Judge, typed: Typed) -> None:
        self._judge = judge
        self._part = typed.part
        self.properties = _inner(typed, "properties")
        self.patterns = _inner(typed, "patternProperties")
        required = typed.keywords.get("required")
        listed = required if isinstance(required, list) else []
        self.required = {each for each in listed if isinstance(each, str)}
        self.additional = self._content(typed.keywords, "additionalProperties")
        self.unevaluated = self._content(typed.keywords, "unevaluatedProperties")
        self.rest = (
            self.additional if "additionalProperties" in typed.keywords else self.unevaluated
        )
        """The schema of properties that no other names."""

    def _content(self, keywords: JsonObject, name: str) -> Part | Shape:
        return self._part.inside(keywords[name]) if name in keywords else ANYTHING

    @property
    def is_open(self) -> bool:
        return not self.patterns and isinstance(self._judge.shape(self.rest), Anything)

    def of_others(self, name: str) -> Part | Shape | None:
        """Return the schema of a property that `properties` does not name; None: nobody knows."""
        found: list[Part] = []
        for pattern, part in self.patterns.items():
            matches = has_pattern(name, pattern)
            if matches is None:
                return None
            if matches:
                found.append(part)
        if len(found) > 1:
            return Combined("allOf", tuple(found))
        return found[0] if found else self.rest

    def has_default(self, name: str) -> bool:
        value: JsonValue = self.properties[name].value
        return isinstance(value, dict) and "default" in value


def _inner(typed: Typed, keyword: str) -> dict[str, Part]:
    content = typed.keywords.get(keyword)
    if not isinstance(content, dict):
        return {}
    return {name: typed.part.inside(value) for name, value in content.items()}


def has_pattern(name: str, pattern: str) -> bool | None:
    """Whether a name has the pattern; None where nobody can say in bounded time."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        return re2.compile(pattern, options).search(name) is not None
    except re2.error:
        return None


def _properties(judge: Judge, new: ContentModel, old: ContentModel, path: str) -> list[str]:
    found: list[str] = []
    for name, part in old.properties.items():
        inner = f"{path}/{name}"
        if name in new.properties:
            found += judge.compare(new.properties[name], part, inner)
        elif not new.is_open:
            found += _removed(judge, new.of_others(name), part, inner)
    for name in new.properties:
        if name not in old.properties:
            found += _added(judge, new, old, name, f"{path}/{name}")
    return found


def _removed(judge: Judge, rest: Part | Shape | None, removed: Part, path: str) -> list[str]:
    name = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    if rest is None:
        return judge.line(name, path)
    if isinstance(judge.shape(rest), Nothing):
        if isinstance(judge.shape(removed), Nothing):
            return []
        return judge.line("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
    found = judge.compare(rest, removed, path)
    return [*found, *judge.line(name, path)] if found else []


def _added(judge: Judge, new: ContentModel, old: ContentModel, name: str, path: str) -> list[str]:
    added = new.properties[name]
    needed = name in new.required and not new.has_default(name)
    if old.is_open:
        if isinstance(judge.shape(added), Anything) and not needed:
            return []
        which = (
            "OPTIONAL_PROPERTY"
            if name not in new.required
            else "REQUIRED_PROPERTY"
            if needed
            else "REQUIRED_PROPERTY_WITH_DEFAULT"
        )
        return judge.line(f"{which}_ADDED_TO_OPEN_CONTENT_MODEL", path)
    rest = old.of_others(name)
    found = judge.compare(added, rest, path) if rest is not None else []
    if found or rest is None:
        missing = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        found = [*found, *judge.line(missing, path)]
    if needed:
        found = [*found, *judge.line("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path)]
    return found


def _required(judge: Judge, new: ContentModel, old: ContentModel, path: str) -> list[str]:
    """Compare the properties that the reader asks for and the writer did not; a new one is judged
    where it is added."""
    found: list[str] = []
    for name in sorted(new.required - old.required):
        if name in new.properties and (name not in old.properties or new.has_default(name)):
            continue
        found += judge.line("REQUIRED_ATTRIBUTE_ADDED", f"{path}/{name}")
    return found


def _patterns(judge: Judge, new: ContentModel, old: ContentModel, path: str) -> list[str]:
    found: list[str] = []
    for pattern, part in new.patterns.items():
        inner = f"{path}/{pattern}"
        if pattern in old.patterns:
            found += judge.compare(part, old.patterns[pattern], inner)
            continue
        if old.patterns:
            # Names may have both patterns.
            found += judge.line("TYPE_CHANGED", inner)
        found += judge.compare(part, old.rest, inner)
        for name, before in old.properties.items():
            if has_pattern(name, pattern) is not False:
                found += judge.compare(part, before, inner)
    for pattern, part in old.patterns.items():
        if pattern not in new.patterns:
            found += judge.compare(new.rest, part, f"{path}/{pattern}")
    return found


def _rest(judge: Judge, new: ContentModel, old: ContentModel, path: str) -> list[str]:
    found: list[str] = []
    for name, after, before in (
        ("additional", new.additional, old.additional),
        ("unevaluated", new.unevaluated, old.unevaluated),
    ):
        inner = f"{path}/{name}Properties"
        read, written = judge.shape(after), judge.shape(before)
        if isinstance(read, Nothing) and not isinstance(written, Nothing):
            found += judge.line(f"{name.upper()}_PROPERTIES_REMOVED", inner)
        elif isinstance(written, Anything) and not isinstance(read, Anything):
            found += judge.line(f"{name.upper()}_PROPERTIES_NARROWED", inner)
        else:
            found += judge.compare(after, before, inner)
    return found


def _names(judge: Judge, reader: Typed, writer: Typed, path: str) -> list[str]:
    if "propertyNames" not in reader.keywords:
        return []
    before = writer.keywords.get("propertyNames", True)
    return judge.compare(
        reader.part.inside(reader.keywords["propertyNames"]), writer.part.inside(before), path
    )


def _dependencies(judge: Judge, reader: Typed, writer: Typed, path: str) -> list[str]:
    found: list[str] = []
    after, before = _dependency_table(reader), _dependency_table(writer)
    for name, new in after.items():
        inner, old = f"{path}/{name}", before.get(name)
        if isinstance(new, Part):
            if not isinstance(old, Part):
                found += judge.line("DEPENDENCY_SCHEMA_ADDED", inner)
            else:
                found += judge.compare(new, old, inner)
        elif old is None or isinstance(old, Part):
            found += judge.line("DEPENDENCY_ARRAY_ADDED", inner)
        elif not new <= old:
            kind = "EXTENDED" if old <= new else "CHANGED"
            found += judge.line(f"DEPENDENCY_ARRAY_{kind}", inner)
    return found


def _dependency_table(typed: Typed) -> dict[str, Part | frozenset[str]]:
    """Return what each property asks for: other properties, or a schema. A name that has both, in
    the keywords of later drafts, stands twice."""
    found: dict[str, Part | frozenset[str]] = {}
    for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
        content = typed.keywords.get(keyword)
        for name, value in content.items() if isinstance(content, dict) else ():
            if isinstance(value, list):
                found[f"{name}"] = frozenset(each for each in value if isinstance(each, str))
            else:
                found[name if keyword != "dependentSchemas" else f"{name} (schema)"] = (
                    typed.part.inside(value)
                )
    return found
