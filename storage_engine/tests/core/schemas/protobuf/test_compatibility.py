"""What a reader of one Protobuf schema can read of another, rule by rule.

Source: Confluent's documentation of the evolution of Protobuf schemas."""

import functools

import pytest

from storage_engine.core.schemas.languages import incompatibilities
from storage_engine.tests.core.schemas.given import protobuf

once = functools.lru_cache(maxsize=None)(protobuf)


def proto3(body, package="p"):
    return once(f'syntax = "proto3"; package {package}; {body}')


def proto2(body):
    return once(f'syntax = "proto2"; package p; {body}')


def names(reader, writer):
    """Return the names of the differences, with their paths."""
    found = []
    for line in incompatibilities(reader, writer):
        path = line.partition("path '")[2] or line.partition("at '")[2]
        found.append(f"{line.split(chr(39))[1]} {path.partition(chr(39))[0]}")
    return found


WIRE_GROUPS = [
    ["int32", "int64", "uint32", "uint64", "bool", "E"], ["sint32", "sint64"], ["string", "bytes"],
    ["fixed32", "sfixed32"], ["fixed64", "sfixed64"], ["float"], ["double"],
]  # fmt: skip


def every_scalar(order):
    scalars = [name for group in WIRE_GROUPS for name in order(group)]
    fields = " ".join(f"{name} f{n} = {n};" for n, name in enumerate(scalars, 1))
    return proto3(f"enum E {{ A = 0; }} message M {{ {fields} }}")


def test_scalars_of_one_wire_group_can_be_read_as_each_other():
    assert names(every_scalar(list), every_scalar(lambda group: group[1:] + group[:1])) == []


def test_scalars_of_two_wire_groups_can_not_be_read_as_each_other():
    groups = [*WIRE_GROUPS[1:], WIRE_GROUPS[0]]
    reader, writer = (
        proto3("enum E { A = 0; } message M { "
               + " ".join(f"{group[0]} f{n} = {n};" for n, group in enumerate(each, 1)) + "}")
        for each in (groups, WIRE_GROUPS)
    )  # fmt: skip
    expected = [f"FIELD_SCALAR_KIND_CHANGED #/M/{n}" for n in range(1, 8)]
    assert names(reader, writer) == expected


M = proto3("message M { string a = 1; }")
TWO = proto3("message M { string a = 1; int32 b = 2; }")
ONEOF = proto3("message M { oneof o { string a = 1; int32 b = 2; } }")

READABLE = {
    "the same": (M, M),
    "a field added": (TWO, M),
    "a field removed": (M, TWO),
    "a field renamed": (proto3("message M { string b = 1; }"), M),
    "texts become a list": (proto3("message M { repeated string a = 1; }"), M),
    "a message added": (proto3("message M { string a = 1; } message N {}"), M),
    "messages in another order": (proto3("message N {} message M {}"),
                                  proto3("message M {} message N {}")),
    "an enum added": (proto3("message M { string a = 1; } enum E { A = 0; }"), M),
    "an enum removed": (M, proto3("message M { string a = 1; } enum E { A = 0; }")),
    "a constant added": (proto3("enum E { A = 0; B = 1; }"), proto3("enum E { A = 0; }")),
    "a constant removed": (proto3("enum E { A = 0; }"), proto3("enum E { A = 0; B = 1; }")),
    "a constant renamed": (proto3("enum E { C = 0; }"), proto3("enum E { A = 0; }")),
    "a oneof added": (proto3("message M { string a = 1; oneof o { int32 c = 3; } }"), M),
    "a oneof removed with all of its fields": (proto3("message M {}"), ONEOF),
    "a oneof renamed": (proto3("message M { oneof x { string a = 1; int32 b = 2; } }"), ONEOF),
    "a field added to a oneof":
        (proto3("message M { oneof o { string a = 1; int32 b = 2; int32 c = 3; } }"), ONEOF),
    "a field moved into a new oneof": (proto3("message M { oneof o { string a = 1; } }"), M),
    "fields moved out of a oneof": (TWO, ONEOF),
    "optional": (proto3("message M { optional string a = 1; }"), M),
    "values of a map of the same group": (proto3("message M { map<int32, int64> a = 1; }"),
                                          proto3("message M { map<int64, int32> a = 1; }")),
    "options and comments": (proto3("option java_package = 'x'; message M { string a = 1 "
                                    "[deprecated = true]; /* c */ }"), M),
    "a message that contains itself": (proto3("message T { T t = 1; int64 a = 2; }"),
                                       proto3("message T { T t = 1; int32 a = 2; }")),
    "a required field in both": (proto2("message M { required int32 a = 1; }"),
                                 proto2("message M { required int32 a = 1; }")),
    "extensions that are the same": (proto2("message M { extensions 5 to 9; }"),
                                     proto2("message M { extensions 5 to 9; }")),
}  # fmt: skip


@pytest.mark.parametrize(("reader", "writer"), READABLE.values(), ids=READABLE.keys())
def test_a_reader_can_read(reader, writer):
    assert names(reader, writer) == []


UNREADABLE = {
    "another package": (proto3("message M {}", "q"), proto3("message M {}"),
                        ["PACKAGE_CHANGED #/"]),
    "a message removed": (proto3("message N {}"), proto3("message M {} message N {}"),
                          ["MESSAGE_REMOVED #/M"]),
    "an inner message removed": (proto3("message M {}"), proto3("message M { message N {} }"),
                                 ["MESSAGE_REMOVED #/M/N"]),
    "a scalar becomes a message": (proto3("message M { M a = 1; }"), M,
                                   ["FIELD_KIND_CHANGED #/M/1"]),
    "a map becomes a list": (proto3("message M { repeated M a = 1; }"),
                             proto3("message M { map<string, M> a = 1; }"),
                             ["FIELD_KIND_CHANGED #/M/1"]),
    "a group becomes a message": (proto2("message M { message G {} optional G g = 1; }"),
                                  proto2("message M { optional group G = 1 {} }"),
                                  ["FIELD_KIND_CHANGED #/M/1"]),
    "another number": (proto3("message M { string b = 1; int32 a = 2; }"),
                       proto3("message M { int32 a = 1; string b = 2; }"),
                       ["FIELD_SCALAR_KIND_CHANGED #/M/1", "FIELD_SCALAR_KIND_CHANGED #/M/2"]),
    "another message": (proto3("message A {} message B {} message M { A a = 1; }"),
                        proto3("message A {} message B {} message M { B a = 1; }"),
                        ["FIELD_NAMED_TYPE_CHANGED #/M/1"]),
    "numbers become a list": (proto3("message M { repeated int32 a = 1; }"),
                              proto3("message M { int32 a = 1; }"),
                              ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"]),
    "values of a map of another group": (proto3("message M { map<string, float> a = 1; }"),
                                         proto3("message M { map<string, double> a = 1; }"),
                                         ["FIELD_SCALAR_KIND_CHANGED #/M/1"]),
    "a required field added": (proto2("message M { required string a = 1; }"),
                               proto2("message M {}"), ["REQUIRED_FIELD_ADDED #/M/1"]),
    "a field becomes required": (proto2("message M { required string a = 1; }"),
                                 proto2("message M { optional string a = 1; }"),
                                 ["REQUIRED_FIELD_ADDED #/M/1"]),
    "a required field removed": (proto2("message M {}"),
                                 proto2("message M { required string a = 1; }"),
                                 ["REQUIRED_FIELD_REMOVED #/M/1"]),
    "a field of a oneof removed": (proto3("message M { oneof o { string a = 1; } }"), ONEOF,
                                   ["ONEOF_FIELD_REMOVED #/M/o/2"]),
    "a field of a removed oneof removed": (M, ONEOF, ["ONEOF_FIELD_REMOVED #/M/o/2"]),
    "fields moved into a oneof": (ONEOF, TWO, ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"]),
    "a field moved into a oneof that is there": (
        proto3("message M { oneof o { string a = 1; int32 b = 2; int32 c = 3; } }"),
        proto3("message M { oneof o { string a = 1; int32 b = 2; } int32 c = 3; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"],
    ),
    "two oneofs become one": (
        proto3("message M { oneof o { string a = 1; int32 b = 2; } }"),
        proto3("message M { oneof o { string a = 1; } oneof q { int32 b = 2; } }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"],
    ),
    "deep inside": (
        proto3("message M { message N { string a = 1; } N n = 1; }"),
        proto3("message M { message N { float a = 1; } N n = 1; }"),
        ["FIELD_NAMED_TYPE_CHANGED #/M/1", "FIELD_SCALAR_KIND_CHANGED #/M/N/1"],
    ),
    # What is not understood.
    "extensions": (proto2("message M { extensions 5 to 9; } extend M { optional int32 x = 5; }"),
                   proto2("message M { extensions 5 to 9; } extend M { optional float x = 5; }"),
                   ["EXTENSIONS_CHANGED #/"]),
    "editions": (once('edition = "2023"; package p; message M { string a = 1; }'), M,
                 ["EXTENSIONS_CHANGED #/"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "writer", "expected"), UNREADABLE.values(), ids=UNREADABLE.keys()
)
def test_a_reader_can_not_read(reader, writer, expected):
    assert sorted(names(reader, writer)) == expected


def test_a_line_says_what_is_different():
    lines = incompatibilities(proto3("message N {}"), proto3("message M {}"))
    assert lines == [
        "{errorType:'MESSAGE_REMOVED', description:'The new schema is missing a MESSAGE type at "
        "path '#/M' in the old schema'}"
    ]


def test_types_that_are_imported_are_compared():
    text = 'syntax = "proto3"; package p; import "n.proto"; message M { N n = 1; }'
    new, old = (
        protobuf(text, {"n.proto": f'syntax = "proto3"; package p; message N {{ {kind} a = 1; }}'})
        for kind in ("int64", "int32")
    )
    other = 'syntax = "proto3"; package p; message N { string a = 1; }'
    assert names(new, old) == []
    assert "FIELD_SCALAR_KIND_CHANGED #/N/1" in names(protobuf(text, {"n.proto": other}), old)
