"""What a reader of one JSON Schema takes of another, rule by rule.

Source: Confluent's documentation of the evolution of JSON Schemas."""

import contextlib
import json

import pytest

from storage_engine.core.schemas.languages import InvalidSchemaError, incompatibilities, parse
from storage_engine.tests.core.schemas.given import DRAFT_2020, avro, json_schema, json_text

TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}
OPEN = {"type": "object"}
CLOSED = {"type": "object", "additionalProperties": False}
WITH_TEXTS = {"type": "object", "additionalProperties": TEXT}
LIST = {"type": "array"}


def reasons(reader, writer):
    """Return the names of the differences, with their paths."""
    lines = incompatibilities(json_schema(reader), json_schema(writer))
    found = []
    for line in lines:
        name = line.split("'")[1]
        path = line.partition("at path '")[2].partition("'")[0]
        found.append(f"{name} {path}")
    return found


def with_properties(base, *required, **properties):
    return {**base, "properties": properties, "required": [*required]}


A, AB = with_properties(OPEN, a=TEXT), with_properties(OPEN, a=TEXT, b=NUMBER)

# What may be changed in both directions stands in both tables.
READABLE = {
    "the same": (A, A),
    "anything": ({}, A),
    "nothing written": (A, False),
    "annotations": ({**A, "title": "t", "description": "d", "x": 1, "$comment": "c"}, A),
    "an integer is a number": (NUMBER, WHOLE),
    "a type more": ({"type": ["string", "null"]}, TEXT),
    "a type more of several": ({"type": ["string", "null", "number"]},
                               {"type": ["null", "string"]}),
    "an enum grows": ({"enum": ["a", "b"]}, {"enum": ["a"]}),
    "an enum with a type grows": ({**TEXT, "enum": ["a", "b"]}, {**TEXT, "enum": ["a"]}),
    "no enum any more": (TEXT, {**TEXT, "enum": ["a"]}),
    "a constant is one of an enum": ({"enum": ["a", "b"]}, {"const": "a"}),
    "1 is 1.0": ({"const": 1.0}, {"const": 1}),
    # Limits are loosened or removed.
    "longer texts": ({**TEXT, "maxLength": 3}, {**TEXT, "maxLength": 2}),
    "shorter texts": ({**TEXT, "minLength": 2}, {**TEXT, "minLength": 3}),
    "no limit of texts": (TEXT, {**TEXT, "minLength": 2, "maxLength": 3, "pattern": "a"}),
    "no format": (TEXT, {**TEXT, "format": "date"}),
    "larger numbers": ({**NUMBER, "maximum": 3}, {**NUMBER, "maximum": 2}),
    "smaller numbers": ({**NUMBER, "minimum": 2}, {**NUMBER, "minimum": 3}),
    "larger numbers below": ({**NUMBER, "exclusiveMaximum": 3}, {**NUMBER, "exclusiveMaximum": 2}),
    "smaller numbers above": ({**NUMBER, "exclusiveMinimum": 2}, {**NUMBER, "exclusiveMinimum": 3}),
    "no limit of numbers": (NUMBER, {**NUMBER, "maximum": 2, "minimum": 0, "multipleOf": 2}),
    "multiples of a divisor": ({**NUMBER, "multipleOf": 0.1}, {**NUMBER, "multipleOf": 0.5}),
    "more properties": ({**OPEN, "maxProperties": 3}, {**OPEN, "maxProperties": 2}),
    "fewer properties": ({**OPEN, "minProperties": 2}, {**OPEN, "minProperties": 3}),
    "more items": ({**LIST, "maxItems": 3}, {**LIST, "maxItems": 2}),
    "fewer items": ({**LIST, "minItems": 2}, {**LIST, "minItems": 3}),
    "items that are equal": (LIST, {**LIST, "uniqueItems": True}),
    # Properties.
    "a property removed, open": (A, AB),
    "a property added, closed": (with_properties(CLOSED, a=TEXT, b=NUMBER),
                                 with_properties(CLOSED, a=TEXT)),
    "a required property with a default added, closed":
        (with_properties(CLOSED, "a", a={**TEXT, "default": ""}), CLOSED),
    "a property that may be anything added, open": (with_properties(OPEN, a={}), OPEN),
    "a property that can't be removed, closed": (CLOSED, with_properties(CLOSED, a=False)),
    "a property added that fits the rest": (with_properties(WITH_TEXTS, a=TEXT), WITH_TEXTS),
    "a property removed that fits the rest": (WITH_TEXTS, with_properties(WITH_TEXTS, a=TEXT)),
    "a property added that fits its pattern": (
        with_properties({**CLOSED, "patternProperties": {"^a": TEXT}}, ab=TEXT),
        {**CLOSED, "patternProperties": {"^a": TEXT}},
    ),
    "a property removed that fits its pattern": (
        {**CLOSED, "patternProperties": {"^a": TEXT}},
        with_properties({**CLOSED, "patternProperties": {"^a": TEXT}}, ab=TEXT),
    ),
    "a property of a wider type": (with_properties(OPEN, a=NUMBER), with_properties(OPEN, a=WHOLE)),
    "not required any more": (A, with_properties(OPEN, "a", a=TEXT)),
    "required, with a default": (with_properties(OPEN, "a", a={**TEXT, "default": ""}), A),
    "others are taken": (OPEN, CLOSED),
    "others of a wider type": ({**OPEN, "additionalProperties": NUMBER},
                               {**OPEN, "additionalProperties": WHOLE}),
    "others of any type": (OPEN, WITH_TEXTS),
    "a dependency removed": (OPEN, {**OPEN, "dependencies": {"a": ["b"], "c": OPEN}}),
    "a dependency of less": ({**OPEN, "dependencies": {"a": ["b"]}},
                             {**OPEN, "dependencies": {"a": ["b", "c"]}}),
    "names may be any": (OPEN, {**OPEN, "propertyNames": {"maxLength": 2}}),
    # Items.
    "items of a wider type": ({**LIST, "items": NUMBER}, {**LIST, "items": WHOLE}),
    "items of any type": (LIST, {**LIST, "items": WHOLE}),
    "an item added, closed": ({**LIST, "items": [TEXT, TEXT], "additionalItems": False},
                              {**LIST, "items": [TEXT], "additionalItems": False}),
    "an item removed, open": ({**LIST, "items": [TEXT]}, {**LIST, "items": [TEXT, WHOLE]}),
    "an item added that fits the rest": ({**LIST, "items": [TEXT, TEXT], "additionalItems": TEXT},
                                         {**LIST, "items": [TEXT], "additionalItems": TEXT}),
    "an item removed that fits the rest": ({**LIST, "items": [TEXT], "additionalItems": TEXT},
                                           {**LIST, "items": [TEXT, TEXT],
                                            "additionalItems": TEXT}),
    "others items are taken": ({**LIST, "items": [TEXT]},
                               {**LIST, "items": [TEXT], "additionalItems": False}),
    "nothing needs to be contained": (LIST, {**LIST, "contains": TEXT}),
    # Combined schemas.
    "oneOf grows": ({"oneOf": [TEXT, NUMBER]}, {"oneOf": [TEXT]}),
    "anyOf grows": ({"anyOf": [NUMBER, TEXT]}, {"anyOf": [TEXT]}),
    "allOf shrinks": ({"allOf": [TEXT]}, {"allOf": [TEXT, {"maxLength": 2}]}),
    "oneOf becomes anyOf": ({"anyOf": [TEXT, NUMBER]}, {"oneOf": [TEXT, NUMBER]}),
    "a type becomes one of several": ({"oneOf": [NUMBER, TEXT]}, TEXT),
    "all of several becomes one of them": (TEXT, {"allOf": [TEXT, {"maxLength": 2}]}),
    "a wider type in oneOf": ({"oneOf": [TEXT, NUMBER]}, {"oneOf": [WHOLE, TEXT]}),
    "not a narrower type": ({"not": WHOLE}, {"not": NUMBER}),
    "what is not understood is the same": ({"if": TEXT, "then": {"maxLength": 2}},
                                           {"if": TEXT, "then": {"maxLength": 2}}),
}  # fmt: skip


@pytest.mark.parametrize(("reader", "writer"), READABLE.values(), ids=READABLE.keys())
def test_a_reader_takes(reader, writer):
    assert reasons(reader, writer) == []


UNREADABLE = {
    "another type": (TEXT, NUMBER, "TYPE_CHANGED #"),
    "a number is no integer": (WHOLE, NUMBER, "TYPE_NARROWED #"),
    "a type fewer": (TEXT, {"type": ["string", "null"]}, "TYPE_CHANGED #"),
    "a type where there was none": (TEXT, {}, "TYPE_CHANGED #"),
    "a type beside keywords": ({**TEXT, "maxLength": 2}, {"maxLength": 2}, "TYPE_NARROWED #"),
    "nothing is taken": (False, TEXT, "TYPE_CHANGED #"),
    "an enum shrinks": ({"enum": ["a"]}, {"enum": ["a", "b"]}, "ENUM_ARRAY_NARROWED #/enum"),
    "an enum changes": ({"enum": ["a", "c"]}, {"enum": ["a", "b"]}, "ENUM_ARRAY_CHANGED #/enum"),
    "an enum where there was none": ({**TEXT, "enum": ["a"]}, TEXT, "TYPE_CHANGED #"),
    "another constant": ({"const": 1}, {"const": 2}, "ENUM_ARRAY_CHANGED #/const"),
    "true is not 1": ({"const": True}, {"const": 1}, "ENUM_ARRAY_CHANGED #/const"),
    **{
        f"{keyword} {name}": (
            {"type": kind, keyword: new},
            {"type": kind, **({} if old is None else {keyword: old})},
            f"{name} #/{keyword}",
        )
        for kind, keyword, new, old, name in [
            ("string", "maxLength", 2, 3, "MAX_LENGTH_DECREASED"),
            ("string", "maxLength", 2, None, "MAX_LENGTH_ADDED"),
            ("string", "minLength", 3, 2, "MIN_LENGTH_INCREASED"),
            ("string", "minLength", 3, None, "MIN_LENGTH_ADDED"),
            ("string", "pattern", "a", "b", "PATTERN_CHANGED"),
            ("string", "pattern", "a", None, "PATTERN_ADDED"),
            ("string", "format", "date", None, "FORMAT_ADDED"),
            ("string", "format", "date", "time", "FORMAT_CHANGED"),
            ("string", "contentEncoding", "base64", None, "CONTENT_ENCODING_ADDED"),
            ("number", "maximum", 2, 3, "MAXIMUM_DECREASED"),
            ("number", "maximum", 2, None, "MAXIMUM_ADDED"),
            ("number", "minimum", 3, 2, "MINIMUM_INCREASED"),
            ("number", "minimum", 3, None, "MINIMUM_ADDED"),
            ("number", "exclusiveMaximum", 2, 3, "EXCLUSIVE_MAXIMUM_DECREASED"),
            ("number", "exclusiveMaximum", 2, None, "EXCLUSIVE_MAXIMUM_ADDED"),
            ("number", "exclusiveMinimum", 3, 2, "EXCLUSIVE_MINIMUM_INCREASED"),
            ("number", "exclusiveMinimum", 3, None, "EXCLUSIVE_MINIMUM_ADDED"),
            ("number", "multipleOf", 4, 2, "MULTIPLE_OF_EXPANDED"),
            ("number", "multipleOf", 3, 2, "MULTIPLE_OF_CHANGED"),
            ("number", "multipleOf", 3, None, "MULTIPLE_OF_ADDED"),
            ("object", "maxProperties", 2, 3, "MAX_PROPERTIES_DECREASED"),
            ("object", "maxProperties", 2, None, "MAX_PROPERTIES_ADDED"),
            ("object", "minProperties", 3, 2, "MIN_PROPERTIES_INCREASED"),
            ("object", "minProperties", 3, None, "MIN_PROPERTIES_ADDED"),
            ("array", "maxItems", 2, 3, "MAX_ITEMS_DECREASED"),
            ("array", "maxItems", 2, None, "MAX_ITEMS_ADDED"),
            ("array", "minItems", 3, 2, "MIN_ITEMS_INCREASED"),
            ("array", "minItems", 3, None, "MIN_ITEMS_ADDED"),
            ("array", "uniqueItems", True, None, "UNIQUE_ITEMS_ADDED"),
            ("array", "uniqueItems", True, False, "UNIQUE_ITEMS_ADDED"),
            ("array", "contains", TEXT, None, "CONTAINS_ADDED"),
        ]
    },
    # Properties.
    "a property added, open": (
        AB, A, "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    "a required property added, open": (
        with_properties(OPEN, "b", a=TEXT, b=NUMBER), A,
        "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    "a required property with a default added, open": (
        with_properties(OPEN, "b", a=TEXT, b={**NUMBER, "default": 1}), A,
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b",
    ),
    "a required property added, closed": (
        with_properties(CLOSED, "a", a=TEXT), CLOSED,
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
    ),
    "a property removed, closed": (
        CLOSED, with_properties(CLOSED, a=TEXT),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a",
    ),
    "a property added that does not fit the rest": (
        with_properties(WITH_TEXTS, a=NUMBER), WITH_TEXTS,
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
    ),
    "a property removed that does not fit the rest": (
        WITH_TEXTS, with_properties(WITH_TEXTS, a=NUMBER),
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
    ),
    "a property that nobody can match": (
        with_properties({**CLOSED, "patternProperties": {"(?=a)": TEXT}}, ab=TEXT),
        {**CLOSED, "patternProperties": {"(?=a)": TEXT}},
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/ab",
    ),
    "a property of a narrower type": (
        with_properties(OPEN, a=WHOLE), with_properties(OPEN, a=NUMBER),
        "TYPE_NARROWED #/properties/a",
    ),
    "required": (with_properties(OPEN, "a", a=TEXT), A, "REQUIRED_ATTRIBUTE_ADDED #/required/a"),
    "required, not described": (
        {**OPEN, "required": ["x"]}, OPEN, "REQUIRED_ATTRIBUTE_ADDED #/required/x",
    ),
    "others are refused": (CLOSED, OPEN, "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"),
    "others of one type": (
        WITH_TEXTS, OPEN, "ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties",
    ),
    "others of another type": (
        WITH_TEXTS, {**OPEN, "additionalProperties": NUMBER}, "TYPE_CHANGED #/additionalProperties",
    ),
    "a pattern": (
        {**OPEN, "patternProperties": {"^a": TEXT}}, OPEN, "TYPE_CHANGED #/patternProperties/^a",
    ),
    "another pattern": (
        {**OPEN, "patternProperties": {"^a": TEXT, "b$": TEXT}},
        {**OPEN, "patternProperties": {"^a": TEXT}}, "TYPE_CHANGED #/patternProperties/b$",
    ),
    "a pattern of properties that are there": (
        with_properties({**CLOSED, "patternProperties": {"^a": TEXT}}, ab=NUMBER),
        with_properties(CLOSED, ab=NUMBER), "TYPE_CHANGED #/patternProperties/^a",
    ),
    "names": (
        {**OPEN, "propertyNames": {"maxLength": 2}}, OPEN, "TYPE_CHANGED #/propertyNames",
    ),
    "a dependency added": (
        {**OPEN, "dependencies": {"a": ["b"]}}, OPEN, "DEPENDENCY_ARRAY_ADDED #/dependencies/a",
    ),
    "a dependency of more": (
        {**OPEN, "dependencies": {"a": ["b", "c"]}}, {**OPEN, "dependencies": {"a": ["b"]}},
        "DEPENDENCY_ARRAY_EXTENDED #/dependencies/a",
    ),
    "another dependency": (
        {**OPEN, "dependencies": {"a": ["c"]}}, {**OPEN, "dependencies": {"a": ["b"]}},
        "DEPENDENCY_ARRAY_CHANGED #/dependencies/a",
    ),
    "a schema for a dependency": (
        {**OPEN, "dependencies": {"a": CLOSED}}, OPEN, "DEPENDENCY_SCHEMA_ADDED #/dependencies/a",
    ),
    "another schema for a dependency": (
        {**OPEN, "dependencies": {"a": CLOSED}}, {**OPEN, "dependencies": {"a": OPEN}},
        "ADDITIONAL_PROPERTIES_REMOVED #/dependencies/a/additionalProperties",
    ),
    # Items.
    "items of a narrower type": (
        {**LIST, "items": WHOLE}, {**LIST, "items": NUMBER}, "TYPE_NARROWED #/items",
    ),
    "an item added, open": (
        {**LIST, "items": [TEXT, WHOLE]}, {**LIST, "items": [TEXT]},
        "ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1",
    ),
    "an item removed, closed": (
        {**LIST, "items": [TEXT], "additionalItems": False},
        {**LIST, "items": [TEXT, WHOLE], "additionalItems": False},
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1",
    ),
    "an item added that does not fit the rest": (
        {**LIST, "items": [TEXT, WHOLE], "additionalItems": TEXT},
        {**LIST, "items": [TEXT], "additionalItems": TEXT},
        "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1",
    ),
    "an item removed that does not fit the rest": (
        {**LIST, "items": [TEXT], "additionalItems": TEXT},
        {**LIST, "items": [TEXT, WHOLE], "additionalItems": TEXT},
        "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1",
    ),
    "other items are refused": (
        {**LIST, "items": [TEXT], "additionalItems": False}, {**LIST, "items": [TEXT]},
        "ADDITIONAL_ITEMS_REMOVED #/additionalItems",
    ),
    "other items of one type": (
        {**LIST, "items": [TEXT], "additionalItems": TEXT}, {**LIST, "items": [TEXT]},
        "ADDITIONAL_ITEMS_NARROWED #/additionalItems",
    ),
    # Combined schemas.
    "oneOf shrinks": ({"oneOf": [TEXT]}, {"oneOf": [TEXT, NUMBER]}, "SUM_TYPE_NARROWED #"),
    "anyOf shrinks": ({"anyOf": [TEXT]}, {"anyOf": [TEXT, NUMBER]}, "SUM_TYPE_NARROWED #"),
    "allOf grows": (
        {"allOf": [TEXT, {"maxLength": 2}]}, {"allOf": [TEXT]}, "PRODUCT_TYPE_EXTENDED #",
    ),
    "anyOf becomes oneOf": (
        {"oneOf": [TEXT, NUMBER]}, {"anyOf": [TEXT, NUMBER]}, "COMBINED_TYPE_CHANGED #",
    ),
    "a member of oneOf changes": (
        {"oneOf": [TEXT, WHOLE]}, {"oneOf": [TEXT, NUMBER]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED #",
    ),
    "two members can't stand for one": (
        {"oneOf": [NUMBER, OPEN]}, {"oneOf": [WHOLE, {**NUMBER, "maximum": 2}]},
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED #",
    ),
    "one of several becomes one of them": (TEXT, {"oneOf": [TEXT, NUMBER]}, "TYPE_CHANGED #"),
    "a type becomes all of several": (
        {"allOf": [TEXT, {"maxLength": 2}]}, TEXT, "TYPE_CHANGED #",
    ),
    "not a wider type": ({"not": NUMBER}, {"not": WHOLE}, "NOT_TYPE_EXTENDED #/not"),
    # What is not understood.
    "a condition": ({"if": TEXT, "then": {"maxLength": 2}}, TEXT, "TYPE_CHANGED #"),
    "another condition": (
        {"if": TEXT, "then": {"maxLength": 2}}, {"if": TEXT, "then": {"maxLength": 3}},
        "TYPE_CHANGED #",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("reader", "writer", "reason"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_reader_does_not_take(reader, writer, reason):
    assert reason in reasons(reader, writer)


def test_a_line_says_what_is_different():
    lines = incompatibilities(
        json_schema({**TEXT, "maxLength": 2}), json_schema({**TEXT, "maxLength": 3})
    )
    assert lines == [
        "{errorType:'MAX_LENGTH_DECREASED', description:'The value at path '#/maxLength' in the "
        "new schema is less than its value in the old schema'}"
    ]


def modern(content):
    return {"$schema": DRAFT_2020, **content}


MODERN = [
    # (reader, writer, whether it can read)
    ({**LIST, "prefixItems": [TEXT]}, {**LIST, "prefixItems": [TEXT, WHOLE]}, True),
    ({**LIST, "prefixItems": [TEXT, WHOLE]}, {**LIST, "prefixItems": [TEXT]}, False),
    ({**LIST, "prefixItems": [TEXT, WHOLE], "items": False},
     {**LIST, "prefixItems": [TEXT], "items": False}, True),
    ({**LIST, "prefixItems": [TEXT], "items": False}, {**LIST, "prefixItems": [TEXT]}, False),
    ({**LIST, "prefixItems": [TEXT, TEXT], "unevaluatedItems": TEXT},
     {**LIST, "prefixItems": [TEXT], "unevaluatedItems": TEXT}, True),
    ({**LIST, "contains": NUMBER}, {**LIST, "contains": WHOLE}, True),
    ({**LIST, "contains": WHOLE}, {**LIST, "contains": NUMBER}, False),
    ({**LIST, "contains": TEXT, "minContains": 2}, {**LIST, "contains": TEXT}, False),
    ({**LIST, "contains": TEXT}, {**LIST, "contains": TEXT, "minContains": 2}, True),
    ({**LIST, "contains": TEXT}, {**LIST, "contains": TEXT, "minContains": 0}, False),
    ({**LIST, "contains": NUMBER, "maxContains": 2},
     {**LIST, "contains": WHOLE, "maxContains": 2}, False),
    ({**LIST, "contains": TEXT, "maxContains": 2}, {**LIST, "contains": TEXT}, False),
    ({**OPEN, "unevaluatedProperties": False}, OPEN, False),
    (OPEN, {**OPEN, "unevaluatedProperties": False}, True),
    (with_properties({**OPEN, "unevaluatedProperties": False}, a=TEXT),
     {**OPEN, "unevaluatedProperties": False}, True),
    ({**OPEN, "unevaluatedProperties": False},
     with_properties({**OPEN, "unevaluatedProperties": False}, a=TEXT), False),
    ({**OPEN, "dependentRequired": {"a": ["b"]}}, OPEN, False),
    (OPEN, {**OPEN, "dependentRequired": {"a": ["b"]}}, True),
    ({**OPEN, "dependentSchemas": {"a": CLOSED}}, OPEN, False),
    ({"$dynamicRef": "#x"}, TEXT, False),
    # What stands beside a reference counts.
    ({"$defs": {"T": TEXT}, "$ref": "#/$defs/T", "maxLength": 2}, TEXT, False),
    (TEXT, {"$defs": {"T": TEXT}, "$ref": "#/$defs/T", "maxLength": 2}, True),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer", "can_read"), MODERN)
def test_keywords_of_draft_2020_12(reader, writer, can_read):
    readers = json_schema(modern(reader), new=False)
    assert (incompatibilities(readers, json_schema(modern(writer))) == []) is can_read


def test_in_draft_7_what_stands_beside_a_reference_does_not_count():
    schema = {"definitions": {"T": TEXT}, "$ref": "#/definitions/T", "maxLength": 2}
    assert reasons(schema, TEXT) == []


def test_in_draft_7_later_keywords_do_not_count():
    """Draft 7 does not close this object, so that it may have a number there."""
    closed = {**OPEN, "unevaluatedProperties": False}
    assert reasons(closed, OPEN) == []
    assert reasons(with_properties(closed, a=TEXT), closed) == [
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"
    ]


def tree(value):
    node = with_properties(CLOSED, value=value, left={"$ref": "#/definitions/N"})
    return {"definitions": {"N": node}, "$ref": "#/definitions/N"}


def test_schemas_that_contain_themselves_are_compared():
    assert reasons(tree(NUMBER), tree(WHOLE)) == []
    assert reasons(tree(WHOLE), tree(NUMBER)) == ["TYPE_NARROWED #/properties/value"]


def test_what_references_lead_to_is_compared():
    outer = json_text(with_properties(CLOSED, a={"$ref": "other.json"}), "other.json")
    before, after = (
        parse(outer, {"other.json": json_text({**TEXT, "maxLength": length})}) for length in (2, 3)
    )
    assert incompatibilities(after, before) == []
    assert "MAX_LENGTH_DECREASED" in incompatibilities(before, after)[0]


def test_a_schema_that_is_not_understood_can_be_read_with_itself():
    schema = json_schema({"if": {"$ref": "#/definitions/A"}, "definitions": {"A": TEXT}})
    changed = json_schema({"if": {"$ref": "#/definitions/A"}, "definitions": {"A": NUMBER}})
    assert incompatibilities(schema, schema) == []
    assert incompatibilities(changed, schema) != []


def test_schemas_of_different_languages_are_not_compared():
    lines = incompatibilities(json_schema({}), avro("int"))
    assert lines == ["Incompatible because of different schema type"]


ODD: list[object] = [None, True, 1, -1.5, "a", [], [[]], {}, {"a": []}, [{"type": 3}, True]]
KEYWORDS = [
    "type",
    "enum",
    "const",
    "not",
    "oneOf",
    "anyOf",
    "allOf",
    "if",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "patternProperties",
    "propertyNames",
    "dependencies",
    "minProperties",
    "prefixItems",
    "contains",
    "minContains",
    "uniqueItems",
    "maximum",
    "multipleOf",
    "minLength",
    "pattern",
    "format",
    "$ref",
    "$id",
    "$schema",
    "title",
]


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_a_schema_that_was_taken_once_is_compared_whatever_it_is(keyword):
    for kind in ("object", "array", "number", "string"):
        schemas = []
        for odd in ODD:
            # What can't be read at all may be refused.
            with contextlib.suppress(InvalidSchemaError):
                schemas.append(json_schema({"type": kind, keyword: odd}, new=False))
        assert schemas
        for reader in schemas:
            for writer in schemas:
                assert isinstance(incompatibilities(reader, writer), list)


def test_large_schemas_are_compared_in_time_or_not_at_all():
    def wide(name):
        return {"oneOf": [{"const": f"{name}{n}"} for n in range(600)]}

    lines = incompatibilities(json_schema(wide("a")), json_schema(wide("b")))
    assert "too large to compare" in lines[0]
    deep = TEXT
    for _ in range(60):
        deep = with_properties(CLOSED, a=deep)
    assert incompatibilities(json_schema(deep), json_schema(json.loads(json.dumps(deep)))) == []
