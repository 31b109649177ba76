"""The child process that compiles has bounds."""

import pytest

from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.schema_tools import protoc

TEXT = 'syntax = "proto3"; message M { string a = 1; }'


def test_a_compilation_has_a_bound_of_time(monkeypatch):
    monkeypatch.setattr(protoc, "WAIT_SECONDS", 0.001)
    with pytest.raises(InvalidSchemaError, match=r"could not be compiled within 0.001 s"):
        protoc.compile_proto(TEXT, {})


@pytest.mark.parametrize(
    ("limit", "value"), [("MEMORY_BYTES", 1), ("OUTPUT_BYTES", 1), ("CPU_SECONDS", 0)]
)
def test_a_compilation_has_bounds(monkeypatch, limit, value):
    monkeypatch.setattr(protoc, limit, value)
    fields = " ".join(f"string a{n} = {n};" for n in range(1, 15_000))
    large = f'syntax = "proto3"; message M {{ {fields} }}'
    with pytest.raises(InvalidSchemaError, match="too large or too deep to be compiled"):
        protoc.compile_proto(large, {})


def test_a_file_that_is_there_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "secret.proto").write_text('syntax = "proto3"; message Secret {}')
    monkeypatch.chdir(tmp_path)
    for name in ("secret.proto", f"{tmp_path}/secret.proto"):
        with pytest.raises(InvalidSchemaError, match="was not found"):
            protoc.compile_proto(f'syntax = "proto3"; import "{name}"; message M {{ }}', {})


def test_a_reference_may_have_any_name_of_a_file():
    others = dict.fromkeys(("schema.proto", "_schema.proto", "a/b.proto"), 'syntax = "proto3";')
    assert protoc.compile_proto(TEXT, others)


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    protoc.compile_proto(TEXT, {})
    with pytest.raises(InvalidSchemaError):
        protoc.compile_proto("message", {})
    assert [*tmp_path.iterdir()] == []
