"""Random schemas and their evolutions: our judgement is that of Apache Avro's own library."""

import json
import warnings

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse as parse_by_avro
from hypothesis import event, given, settings
from hypothesis import strategies as st

from storage_engine.core.schemas.languages import incompatibilities
from storage_engine.tests.core.schemas.given import avro, field, record
from storage_engine.tests.sampling import examples

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
NAMES = ["A", "B", "C"]
PROMOTED = {"int": "long", "long": "float", "float": "double", "bytes": "string"}


class Maker:
    """Makes schemas in which a name may be used again, also inside of its own definition."""

    def __init__(self, draw):
        self.draw = draw
        self.taken: list[str] = []

    def pick(self, *choices):
        return self.draw(st.sampled_from(choices))

    def type(self, level):
        kinds = [self.primitive, self.primitive, self.enum, self.fixed, self.name]
        if level:
            kinds += [self.record, self.record, self.array, self.map, self.union]
        return self.pick(*kinds)(level - 1)

    def primitive(self, _):
        return self.pick(*PRIMITIVES)

    def name(self, _):
        return self.pick(*(self.taken or PRIMITIVES))

    def named(self, kind):
        free = [name for name in NAMES if name not in self.taken]
        if not free:
            return self.pick(*self.taken)
        self.taken.append(name := self.pick(*free))
        return {"type": kind, "name": name, "aliases": self.pick([], ["A"], ["B"])}

    def enum(self, _):
        found = self.named("enum")
        if isinstance(found, dict):
            found["symbols"] = self.pick(["a"], ["a", "b"], ["a", "b", "c"], ["b", "c"])
            if self.pick(True, False):
                found["default"] = found["symbols"][0]
        return found

    def fixed(self, _):
        found = self.named("fixed")
        if isinstance(found, dict):
            found["size"] = self.pick(1, 2)
        return found

    def array(self, level):
        return {"type": "array", "items": self.type(level)}

    def map(self, level):
        return {"type": "map", "values": self.type(level)}

    def record(self, level):
        found = self.named("record")
        if isinstance(found, dict):
            names = self.pick("", "x", "xy", "yx", "xyz")
            found["fields"] = [self.field(name, level) for name in names]
        return found

    def field(self, name, level):
        if self.pick(True, False, False):
            return field(name, ["null", "string"], default=None)
        return field(name, self.type(level), aliases=self.pick([], [], ["x"], ["z"]))

    def union(self, level):
        return union([self.type(level) for _ in range(self.pick(1, 2, 3))])


def union(branches):
    """A union of the branches. One that may not be there gives way to what it contains, so that no
    definition is lost."""
    seen: dict[str, object] = {}
    waiting = [*branches]
    while waiting:
        branch = waiting.pop(0)
        if isinstance(branch, list):
            waiting[:0] = branch
            continue
        kind = branch if isinstance(branch, str) else branch.get("name", branch["type"])
        if kind not in seen:
            seen[kind] = branch
        elif kind in ("array", "map"):
            waiting.insert(0, branch.get("items", branch.get("values")))
    return [*seen.values()] or ["null"]


class Evolution:
    """Changes a schema here and there, mostly so that the old can be read."""

    def __init__(self, draw):
        self.draw = draw

    def now(self, chance=4):
        return self.draw(st.integers(0, chance)) == 0

    def of(self, kind):
        if isinstance(kind, list):
            found = [self.of(each) for each in kind]
            return union([*found, "string"] if self.now() else found)
        if isinstance(kind, str):
            if kind in PROMOTED and self.now(1):
                kind = PROMOTED[kind]
            return [kind, "null"] if kind in PROMOTED and self.now() else kind
        return {name: getattr(self, name, lambda it: it)(value) for name, value in kind.items()}

    def items(self, value):
        return self.of(value)

    def values(self, value):
        return self.of(value)

    def symbols(self, value):
        return [*value, "d"] if self.now() else value

    def fields(self, value):
        found = [{**each, "type": self.of(each["type"])} if "default" not in each else each
                 for each in value]  # fmt: skip
        if self.now():
            found.append(field("new", "int", **({"default": 1} if self.now(1) else {})))
        if self.now():
            # One that defines no name.
            found = [each for each in found if isinstance(each["type"], dict | list)]
        return found[::-1] if self.now() and not any(map(defines, found)) else found


def defines(content):
    return '"name"' in json.dumps(content["type"])


@st.composite
def pairs(draw):
    """A reader's and a writer's schema, the one mostly an evolution of the other."""
    writer = Maker(draw).type(3)
    if draw(st.integers(0, 5)) == 0:
        return top(Maker(draw).type(3)), top(writer)
    pair = Evolution(draw).of(writer), writer
    return tuple(top(each) for each in (pair[::-1] if draw(st.booleans()) else pair))


def top(content):
    return record(field("top", content), name="Top")


def judged_by_avro(reader, writer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pair = [parse_by_avro(json.dumps(each)) for each in (reader, writer)]
    found = ReaderWriterCompatibilityChecker().get_compatibility(*pair)
    return found.compatibility is SchemaCompatibilityType.compatible


@settings(max_examples=examples(2000), deadline=None)
@given(pairs())
def test_our_judgement_is_that_of_avro(pair):
    ours = incompatibilities(*(avro(each) for each in pair)) == []
    event(f"compatible: {ours}")
    assert ours is judged_by_avro(*pair)
