"""Records of `_schemas`, as Confluent's registry writes them, and as nobody should."""

import json

import pytest

from storage_engine.core.schemas.languages import Reference, SchemaType
from storage_engine.core.schemas.registry.changes import (
    delete_subject,
    delete_version,
    set_config,
    set_mode,
)
from storage_engine.core.schemas.registry.records import HIGHEST_ID_KEY, Level, Mode
from storage_engine.tests.core.schemas.registry.replaying import MemoryLog

TEXT = '{"type":"record","name":"A","fields":[]}'


def record(key: object, value: object) -> tuple[bytes, bytes | None]:
    def encoded(document: object) -> bytes:
        return json.dumps(document, separators=(",", ":")).encode()

    return encoded(key), None if value is None else encoded(value)


def schema_record(name: str, version: int, schema_id: int, **more: object):
    key = {"keytype": "SCHEMA", "subject": name, "version": version, "magic": 1}
    value = {
        "subject": name,
        "version": version,
        "id": schema_id,
        "schema": TEXT,
        "deleted": False,
    }
    return record(key, {**value, **more})


def test_records_are_written_as_confluents_registry_writes_them() -> None:
    log = MemoryLog()
    log.register("a-value", TEXT)
    log.write(set_config(log.state, None, {"compatibilityLevel": "FULL"}))
    log.write(set_config(log.state, "a-value", {"compatibilityLevel": "NONE"}))
    log.write(set_mode(log.state, "a-value", Mode.READWRITE, force=False))
    log.write(delete_version(log.state, "a-value", 1, permanent=False))
    text = json.dumps(TEXT)
    assert [(key.decode(), value.decode()) for key, value in log.records] == [
        (
            '{"keytype":"SCHEMA","subject":"a-value","version":1,"magic":1}',
            '{"subject":"a-value","version":1,"id":1,"schema":' + text + ',"deleted":false}',
        ),
        ('{"magic":0,"keytype":"NOOP"}', '{"highestId":1}'),
        ('{"keytype":"CONFIG","magic":0}', '{"compatibilityLevel":"FULL"}'),
        (
            '{"keytype":"CONFIG","subject":"a-value","magic":0}',
            '{"subject":"a-value","compatibilityLevel":"NONE"}',
        ),
        (
            '{"keytype":"MODE","subject":"a-value","magic":0}',
            '{"subject":"a-value","mode":"READWRITE"}',
        ),
        (
            '{"keytype":"SCHEMA","subject":"a-value","version":1,"magic":1}',
            '{"subject":"a-value","version":1,"id":1,"schema":' + text + ',"deleted":true}',
        ),
    ]


def test_a_subject_that_is_deleted_is_one_record_and_its_versions_are_deleted_by_it() -> None:
    log = MemoryLog()
    for record_ in (schema_record("a", 1, 1), schema_record("a", 2, 1), schema_record("a", 3, 1)):
        log.append(*record_)
    written = len(log.records)
    assert log.write(delete_subject(log.state, "a", permanent=False)) == [1, 2, 3]
    assert log.records[written:] == [
        (
            b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}',
            b'{"subject":"a","version":3}',
        )
    ]
    assert log.state.versions("a") == []
    assert len(log.state.versions("a", with_deleted=True)) == 3


def test_fields_of_others_are_kept_when_a_record_is_written_again() -> None:
    log = MemoryLog()
    log.append(*schema_record("a", 1, 1, md5="x", ts=17, ruleSet={"domainRules": []}))
    log.append(*record({"keytype": "CONFIG", "subject": "a", "magic": 0}, {"alias": "b"}))
    log.write(set_config(log.state, "a", {"compatibilityLevel": "FULL"}))
    assert json.loads(log.records[-1][1] or b"") == {
        "subject": "a",
        "alias": "b",
        "compatibilityLevel": "FULL",
    }
    log.write(delete_version(log.state, "a", 1, permanent=False))
    value = json.loads(log.records[-1][1] or b"")
    assert (value["md5"], value["ts"], value["deleted"]) == ("x", 17, True)
    assert value["ruleSet"] == {"domainRules": []}


def test_types_and_references_are_read_and_none_means_avro() -> None:
    log = MemoryLog()
    reference = {"name": "n", "subject": "a", "version": 1}
    log.append(*schema_record("a", 1, 1))
    log.append(*schema_record("b", 1, 2, schemaType="PROTOBUF", references=[reference]))
    assert log.state.versions("a")[0].schema.schema_type is SchemaType.AVRO
    schema = log.state.versions("b")[0].schema
    assert (schema.schema_type, schema.references) == (
        SchemaType.PROTOBUF,
        (Reference("n", "a", 1),),
    )
    assert [each.subject for each in log.state.referrers("a", 1)] == ["b"]


DAMAGED = [
    (None, b"{}"),
    (b"", b"{}"),
    (b"\xff", b"{}"),
    (b"[]", b"{}"),
    (b"[" * 100_000, None),
    (b'{"keytype":"CONFIG","subject":"\\ud800","magic":0}', b"{}"),
    (b'{"keytype":"CONFIG","subject":"a","magic":0}', b'{"compatibilityGroup":"\\udc00"}'),
    *(
        record(key, {})
        for key in (
            {"keytype": "UNHEARD", "magic": 0},
            {"keytype": ["SCHEMA"], "magic": 1},
            {"keytype": "SCHEMA", "subject": "a", "version": 0, "magic": 1},
            {"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 7},
            {"keytype": "SCHEMA", "version": 1, "magic": 1},
            {"keytype": "SCHEMA", "subject": "a", "version": 2**31, "magic": 1},
            {"keytype": "DELETE_SUBJECT", "magic": 0},
            {"keytype": "DELETE_SUBJECT", "subject": "a", "magic": 0},
            {"keytype": "CONFIG", "subject": 3, "magic": 0},
            {"keytype": "SCHEMA", "subject": ":.ctx:a", "version": 1, "magic": 1},
            {"keytype": "CONTEXT", "tenant": "default", "context": "ctx"},
        )
    ),
    (*schema_record("other", 1, 1)[:1], b"no JSON"),
    (*schema_record("other", 1, 1)[:1], b'{"id":NaN}'),
    schema_record("other", 1, 1, subject="another"),
    schema_record("other", 1, 1, schema=None),
    schema_record("other", 1, 1, schemaType="XML"),
    schema_record("other", 1, 1, references=[{"name": "n"}]),
    schema_record("other", 1, 1, deleted="no"),
    schema_record("other", 1, -1),
    schema_record("other", 1, True),
    schema_record("other", 1, 1, schema='"another text under the id of a"'),
    record({"keytype": "CONFIG", "magic": 0}, {"compatibilityLevel": "SIDEWAYS"}),
    record({"keytype": "MODE", "magic": 0}, {"mode": "FAST"}),
]


@pytest.mark.parametrize(("key", "value"), DAMAGED)
def test_a_damaged_or_foreign_record_is_counted_and_changes_nothing(key, value) -> None:
    log = MemoryLog()
    log.append(*schema_record("a", 1, 1))
    reason = log.append(key, value)
    assert reason
    assert "\n" not in reason
    assert (log.state.skipped, log.state.subjects(with_deleted=True)) == (1, ["a"])
    assert log.state.level(None) is Level.BACKWARD
    assert log.register("b", '"string"') == 2


def test_the_id_of_a_record_that_can_not_be_served_is_not_given_to_another() -> None:
    log = MemoryLog()
    log.append(*schema_record("a", 1, 41, schemaType="XML"))
    log.append(*schema_record(":.ctx:a", 1, 17))
    assert log.register("b", '"string"') == 42


def test_another_registrys_noop_is_no_news_and_takes_no_highest_id_back() -> None:
    log = MemoryLog()
    log.append(HIGHEST_ID_KEY, b'{"highestId":7}')
    log.append(b'{"keytype":"NOOP","magic":0}', None)
    log.append(HIGHEST_ID_KEY, b"damaged")
    assert (log.state.skipped, log.register("a", '"string"')) == (0, 8)


def test_a_key_that_another_registry_spells_differently_leaves_no_second_value() -> None:
    spelled = b'{"magic":1,"keytype":"SCHEMA","version":1,"subject":"a"}'
    log = MemoryLog()
    log.append(spelled, schema_record("a", 1, 1)[1])
    log.append(b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}')
    log.write(set_config(log.state, None, {"compatibilityLevel": "NONE"}))
    log.write(delete_version(log.state, "a", 1, permanent=False))
    log.write(delete_version(log.state, "a", 1, permanent=True))
    log.records = log.compacted()
    state = log.replayed()
    assert (state.level(None), state.subjects(with_deleted=True)) == (Level.NONE, [])
