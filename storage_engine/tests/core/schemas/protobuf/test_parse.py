"""What is a Protobuf schema, and which two are the same."""

import base64

import pytest
from google.protobuf import struct_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from storage_engine.core.schemas.languages import parse
from storage_engine.core.schemas.protobuf.parsed import ParsedProtobuf
from storage_engine.schema_tools.protoc import compile_proto
from storage_engine.tests.core.schemas.given import protobuf, protobuf_text, refusal

Y = 'syntax = "proto2"; package a.b; message Y { optional int32 q = 1 [default = 5]; }'
WRITTEN = """// What everybody buys
syntax = "proto3"; package a.b;
import "google/protobuf/timestamp.proto"; import public "a.proto";
option java_package = "c\\"d\\n\u00e9"; option optimize_for = SPEED;
message A {
  string s = 1 [json_name = "S"]; google.protobuf.Timestamp t = 2; map<string, Y> m = 3;
  oneof o { int32 i = 5; Y y = 4 [deprecated = true]; }
  optional int32 some_name = 6; repeated E e = 7 [packed = false];
  enum E { option allow_alias = true; Q = 0; S = -1; R = 1 [deprecated = true]; T = 1;
           reserved 7, 10 to max; }
  reserved 30 to 40, 12; reserved "zz", "b"; message N {} N n = 8;
}
enum F { F_ = 0; }
service S { option deprecated = true; rpc F (stream A) returns (Y) { option deprecated = true; }
            rpc G (A) returns (stream Y); }
"""
TEXT = """syntax = "proto3";
package a.b;

import "google/protobuf/timestamp.proto";
import public "a.proto";

option java_package = "c\\042d\\012\\303\\251";
option optimize_for = SPEED;

message A {
  reserved 30 to 40, 12;
  reserved "zz", "b";
  string s = 1 [json_name = "S"];
  .google.protobuf.Timestamp t = 2;
  map<string, .a.b.Y> m = 3;
  oneof o {
    int32 i = 5;
    .a.b.Y y = 4 [deprecated = true];
  }
  optional int32 some_name = 6;
  repeated .a.b.A.E e = 7 [packed = false];
  .a.b.A.N n = 8;
  message N {
  }
  enum E {
    option allow_alias = true;
    reserved 7, 10 to max;
    Q = 0;
    S = -1;
    R = 1 [deprecated = true];
    T = 1;
  }
}

enum F {
  F_ = 0;
}

service S {
  option deprecated = true;
  rpc F (stream .a.b.A) returns (.a.b.Y) {
    option deprecated = true;
  }
  rpc G (.a.b.A) returns (stream .a.b.Y);
}
"""


def test_the_canonical_text_says_all_but_comments():
    schema = protobuf(WRITTEN, {"a.proto": Y})
    assert schema.canonical == TEXT
    assert schema.record_name == "a.b.A"
    again = protobuf(schema.canonical, {"a.proto": Y})
    assert again.canonical == TEXT
    assert again.serialized == schema.serialized


def test_a_normalized_text_is_in_order():
    text = protobuf(WRITTEN, {"a.proto": Y}).normalized
    assert '  reserved 12, 30 to 40;\n  reserved "b", "zz";\n' in text
    assert text.index("y = 4") < text.index("i = 5")
    assert text.index('import "google') < text.index("import public")
    assert protobuf(text, {"a.proto": Y}).normalized == text


def test_a_descriptor_stands_for_its_text():
    schema = protobuf(WRITTEN, {"a.proto": Y})
    given = protobuf(schema.serialized, {"a.proto": protobuf(Y).serialized})
    assert given.canonical == TEXT
    known = base64.b64encode(struct_pb2.DESCRIPTOR.serialized_pb).decode()
    assert protobuf(known).record_name == "google.protobuf.Struct"


def test_proto2_keeps_its_labels_and_defaults():
    text = (
        'syntax = "proto2";\n\nmessage M {\n  required bytes b = 1 [default = "\\001a\\""];\n'
        '  optional string s = 2 [default = "x"];\n  optional double d = 3 [default = inf];\n'
        "  repeated .M m = 4;\n}\n"
    )
    assert protobuf(text).canonical == text


@pytest.mark.parametrize(
    "text",
    [
        'syntax = "proto2"; message M { extensions 5 to 9; } extend M { optional int32 x = 5; }',
        'syntax = "proto2"; message M { optional group G = 1 { } }',
        'edition = "2023"; message M { string a = 1; }',
        'syntax = "proto3"; import "google/protobuf/descriptor.proto"; '
        "extend google.protobuf.MessageOptions { string o = 50000; } "
        'message M { option (o) = "x"; }',
    ],
)
def test_what_can_not_be_written_is_kept_as_it_is(text):
    schema = protobuf(text)
    assert schema.canonical == schema.normalized == text


def test_what_is_referred_to_is_compiled_once_more_from_its_own_text():
    inner = protobuf_text('syntax = "proto3"; package c; message C {}')
    middle = protobuf_text(
        'syntax = "proto3"; package b; import "x/c.proto"; message B { c.C c = 1; }', "x/c.proto"
    )
    outer = protobuf_text(
        'syntax = "proto3"; import "b.proto"; message A { b.B b = 1; }', "b.proto"
    )
    schemas = {"b.proto": middle, "x/c.proto": inner}
    schema = parse(outer, schemas, compile_proto=compile_proto)
    assert isinstance(schema, ParsedProtobuf)
    assert ".b.B" in schema.types.types
    assert ".c.C" in schema.types.types


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message", "is not valid: 1:8: Expected message name"),
        ('syntax = "proto3"; message A { B b = 1; }', 'is not valid: 1:32: "B" is not defined.'),
        ('syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }', "already been used"),
        ('syntax = "proto3"; import "b.proto"; message A {}', 'Import "b.proto" was not found'),
        ('syntax = "proto3"; import "/etc/passwd"; message A {}', 'Import "/etc/passwd" was not'),
        ('syntax = "proto3"; import "../x.proto"; message A {}', 'Import "../x.proto" was not'),
        ('syntax = "proto9"; message A {}', "is not valid"),
        ('syntax = "proto3"; ' + "message A {" * 300 + "}" * 300, "is not valid"),
        ("x" * 5_000_000, "more than 1024 KiB"),
        ("\ud800", "half a character"),
    ],
)
def test_what_is_no_schema_is_refused_by_one_line(text, message):
    assert message in refusal(protobuf_text(text), compile_proto=compile_proto)


def descriptor(**more):
    return base64.b64encode(FileDescriptorProto(**more).SerializeToString()).decode()


MESSAGE = {"name": "M", "field": [{"name": "a", "number": 1, "label": 1, "type": 5}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"dependency": ["b.proto"]}, "imports 'b.proto', which is none of its references"),
        ({"message_type": [{"name": "a b"}]}, "descriptor is not valid"),
        ({"message_type": [MESSAGE, MESSAGE]}, "descriptor is not valid"),
        (
            {"message_type": [{"name": "M", "field": [
                {"name": "a", "number": 1, "label": 1, "type": 11, "type_name": ".X"}]}]},
            "descriptor is not valid",
        ),
        (
            {"message_type": [{"name": "M", "field": [
                {"name": "a", "number": 1, "label": 1, "type": 5, "oneof_index": 3}]}]},
            "descriptor is not valid",
        ),
    ],
)  # fmt: skip
def test_a_descriptor_that_does_not_fit_together_is_refused(content, message):
    text = protobuf_text(descriptor(**content))
    assert message in refusal(text, compile_proto=compile_proto)


@pytest.mark.parametrize(
    "name", ["../x.proto", "/x.proto", "a//b.proto", "a\nb.proto", "x", "a/./b.proto"]
)
def test_a_name_that_is_no_file_is_refused(name):
    other = protobuf_text('syntax = "proto3";')
    line = refusal(
        protobuf_text('syntax = "proto3"; message M {}', name), {name: other},
        compile_proto=compile_proto,
    )  # fmt: skip
    assert "is no name of a file that can be imported" in line


def test_a_descriptor_that_is_not_utf_8_is_refused():
    text = base64.b64encode(b"\x12\x02\xff\xfe").decode()
    line = refusal(protobuf_text(text), compile_proto=compile_proto)
    assert line == "the Protobuf schema's descriptor has a name that is not UTF-8"


def test_without_a_compiler_they_are_not_served():
    assert refusal(protobuf_text(Y)) == "schemas of type PROTOBUF are not served here"
