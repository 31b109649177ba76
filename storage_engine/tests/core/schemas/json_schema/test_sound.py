"""Random schemas, evolutions and values: what a reader is said to take, it takes.

What is left out here is taken by the documented rules though it need not fit: members added to
`oneOf`, and required properties with a default."""

import jsonschema
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from storage_engine.core.schemas.languages import incompatibilities
from storage_engine.tests.core.schemas.given import json_schema
from storage_engine.tests.sampling import examples

NAMES = ["a", "ab", "b"]
SMALL = st.integers(0, 3)

values = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 2, 2.5, 3, "", "a", "ab", "abc"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=6,
)


def some(draw, **keywords):
    """Return a few of the keywords."""
    chosen = draw(st.lists(st.sampled_from(sorted(keywords)), unique=True, max_size=3))
    return {name: draw(keywords[name]) for name in chosen}


@st.composite
def schemas(draw, depth=2):
    inner = schemas(depth - 1) if depth else st.sampled_from([True, {"type": "string"}])
    members = st.lists(inner, min_size=1, max_size=3)
    names = st.dictionaries(st.sampled_from(NAMES), inner, max_size=2)
    kinds = {
        "string": {"minLength": SMALL, "maxLength": SMALL, "pattern": st.sampled_from(["a", "b"])},
        "number": {"minimum": SMALL, "maximum": SMALL, "multipleOf": st.sampled_from([0.5, 1, 2])},
        "integer": {"exclusiveMinimum": SMALL, "exclusiveMaximum": SMALL},
        "object": {
            "properties": names, "additionalProperties": inner | st.just(False),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
            "required": st.lists(st.sampled_from(NAMES), unique=True, max_size=1),
            "minProperties": SMALL, "maxProperties": SMALL, "propertyNames": inner,
            "dependencies": st.dictionaries(
                st.sampled_from(NAMES), inner | st.lists(st.sampled_from(NAMES), unique=True)
            ),
        },
        "array": {
            "items": inner | st.lists(inner, max_size=2), "additionalItems": inner | st.just(False),
            "contains": inner, "uniqueItems": st.booleans(), "minItems": SMALL, "maxItems": SMALL,
        },
        "null": {},
    }  # fmt: skip
    found: dict[str, object] = {}
    match draw(st.sampled_from([*kinds, *kinds, "types", "none", "values", "combined"])):
        case "types":
            found["type"] = draw(st.lists(st.sampled_from([*kinds]), min_size=1, unique=True))
        case "none":
            for keywords in kinds.values():
                found |= some(draw, **keywords) if keywords and draw(st.booleans()) else {}
        case "values":
            found |= some(draw, enum=st.lists(values, min_size=1, max_size=3), const=values)
        case "combined":
            found |= some(draw, anyOf=members, allOf=members, **{"not": inner})
        case kind:
            found |= {"type": kind, **some(draw, **(kinds[kind] or {"title": st.just("t")}))}
    return found


@st.composite
def changed(draw, schema):
    """Change a schema in a few places."""
    if not isinstance(schema, dict) or draw(st.integers(0, 9)) == 0:
        return draw(schemas(1))
    found = {}
    for name, value in schema.items():
        if draw(st.integers(0, 7)) == 0:
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            value += draw(st.sampled_from([0, 0, 1, -1 if value else 0]))
        elif name in ("not", "additionalProperties", "contains", "propertyNames"):
            value = draw(changed(value))
        elif name in ("properties", "patternProperties"):
            value = {each: draw(changed(inner)) for each, inner in value.items()}
            if draw(st.integers(0, 3)) == 0:
                value[draw(st.sampled_from(NAMES))] = draw(schemas(0))
        elif name in ("anyOf", "allOf"):
            value = [draw(changed(each)) for each in value]
        found[name] = value
    return found | (draw(schemas(1)) if draw(st.integers(0, 7)) == 0 else {})


@st.composite
def pairs(draw):
    one = draw(schemas())
    pair = draw(changed(one)), one
    return pair if draw(st.booleans()) else pair[::-1]


@settings(max_examples=examples(3000), deadline=None)
@given(pairs(), st.lists(values, min_size=5, max_size=20))
def test_what_a_reader_is_said_to_take_it_takes(pair, samples):
    reader, writer = pair
    try:
        lines = incompatibilities(json_schema(reader), json_schema(writer))
    except Exception as error:
        assume("is not valid" not in str(error))
        raise
    event(f"taken: {not lines}")
    if lines:
        return
    writes, reads = (jsonschema.Draft7Validator(each) for each in (writer, reader))
    for value in samples:
        if writes.is_valid(value):
            assert reads.is_valid(value), value
