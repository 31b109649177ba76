"""What a registry permits, and what it answers."""

import pytest

from storage_engine.core.schemas.languages import Reference, parse
from storage_engine.core.schemas.registry.changes import (
    LATEST,
    Candidate,
    check_subject,
    delete_config,
    delete_subject,
    delete_version,
    register,
    set_config,
    set_mode,
)
from storage_engine.core.schemas.registry.compatibility import compared_with
from storage_engine.core.schemas.registry.records import Level, Mode
from storage_engine.core.schemas.registry.references import pinned, resolved
from storage_engine.core.schemas.registry.registry_error import RegistryError
from storage_engine.tests.core.schemas.registry.replaying import MemoryLog, avro, candidate

INT, LONG, STRING = '"int"', '"long"', '"string"'


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


def refused(code: int):
    return pytest.raises(RegistryError, check=lambda error: error.code == code)


def test_an_equal_schema_has_the_same_id_under_every_subject(log) -> None:
    assert [log.register("a", INT), log.register("b", INT), log.register("a", LONG)] == [1, 1, 2]
    assert log.register("a", INT) == 1
    assert [each.version for each in log.state.versions("a")] == [1, 2]


def test_metadata_makes_another_schema(log) -> None:
    assert log.register("a", INT) == 1
    assert log.register("a", INT, metadata={"properties": {"owner": "x"}}) == 2
    assert log.register("b", INT, rule_set={"domainRules": [{"name": "r"}]}) == 3
    assert log.register("b", INT) == 1


def test_a_schema_that_was_soft_deleted_comes_back_with_its_id_as_a_later_version(log) -> None:
    log.register("a", INT)
    log.register("a", LONG)
    log.write(delete_subject(log.state, "a", permanent=False))
    assert log.register("a", INT) == 1
    assert [(each.version, each.id) for each in log.state.versions("a")] == [(3, 1)]


def test_the_steps_of_a_deletion_are_in_order(log) -> None:
    with refused(40401):
        delete_subject(log.state, "a", permanent=False)
    log.register("a", INT)
    log.register("a", LONG)
    with refused(40405):
        delete_subject(log.state, "a", permanent=True)
    with refused(40407):
        delete_version(log.state, "a", 1, permanent=True)
    with refused(40402):
        delete_version(log.state, "a", 9, permanent=False)
    assert log.write(delete_version(log.state, "a", 1, permanent=False)) == 1
    with refused(40406):
        delete_version(log.state, "a", 1, permanent=False)
    assert log.write(delete_version(log.state, "a", LATEST, permanent=False)) == 2
    with refused(40404):
        delete_subject(log.state, "a", permanent=False)
    assert log.write(delete_subject(log.state, "a", permanent=True)) == [1, 2]
    with refused(40401):
        delete_subject(log.state, "a", permanent=True)


def refer(log: MemoryLog, subject: str, *references: Reference) -> None:
    schema = pinned(avro(INT, references), log.state)
    known = resolved(schema, log.state)
    given = Candidate(subject=subject, schema=schema, parsed=parse(schema, known))
    log.write(register(log.state, given))


def test_a_version_that_others_refer_to_is_not_deleted(log) -> None:
    log.register("a", LONG)
    refer(log, "b", Reference("n", "a", LATEST))
    assert log.state.versions("b")[0].schema.references == (Reference("n", "a", 1),)
    for delete in (
        lambda: delete_version(log.state, "a", 1, permanent=False),
        lambda: delete_subject(log.state, "a", permanent=False),
    ):
        with refused(42206):
            delete()
    log.write(delete_subject(log.state, "b", permanent=False))
    log.write(delete_subject(log.state, "a", permanent=False))
    with refused(42206):
        delete_subject(log.state, "a", permanent=True)
    log.write(delete_subject(log.state, "b", permanent=True))
    log.write(delete_subject(log.state, "a", permanent=True))


def test_references_are_found_at_second_hand_and_missing_ones_are_told(log) -> None:
    log.register("a", LONG)
    refer(log, "b", Reference("long", "a", 1))
    schema = avro(STRING, (Reference("b", "b", 1),))
    assert set(resolved(schema, log.state)) == {"b", "long"}
    for missing in (Reference("n", "a", 2), Reference("n", "nobody", LATEST)):
        with refused(42201):
            resolved(pinned(avro(INT, (missing,)), log.state), log.state)


@pytest.mark.parametrize("whole", [True, False])
def test_a_read_only_mode_refuses_changes(log, whole) -> None:
    log.register("a", INT)
    log.write(set_mode(log.state, None if whole else "a", Mode.READONLY, force=False))
    with refused(42205):
        register(log.state, candidate("a", LONG))
    with refused(42205):
        delete_subject(log.state, "a", permanent=False)
    with refused(42205):
        set_config(log.state, "a", {"compatibilityLevel": "NONE"})
    log.write(set_mode(log.state, None if whole else "a", Mode.READWRITE, force=False))
    log.register("a", LONG)


def test_the_override_counts_above_a_subjects_mode(log) -> None:
    log.write(set_mode(log.state, "a", Mode.READWRITE, force=False))
    log.write(set_mode(log.state, None, Mode.READONLY, force=False))
    log.register("a", INT)
    log.write(set_mode(log.state, None, Mode.READONLY_OVERRIDE, force=False))
    with refused(42205):
        register(log.state, candidate("a", LONG))
    with refused(42205):
        set_mode(log.state, "a", Mode.READONLY_OVERRIDE, force=False)


def test_ids_are_given_from_outside_in_the_mode_import_alone(log) -> None:
    with refused(42205):
        register(log.state, candidate("a", INT, schema_id=7, version=3))
    log.write(set_mode(log.state, None, Mode.IMPORT, force=False))
    with refused(42205):
        register(log.state, candidate("a", INT))
    assert log.register("a", INT, schema_id=7, version=3) == 7
    with refused(42205):
        register(log.state, candidate("b", LONG, schema_id=7, version=1))
    log.write(set_mode(log.state, None, Mode.READWRITE, force=False))
    assert [(each.version, each.id) for each in log.state.versions("a")] == [(3, 7)]
    assert log.register("a", LONG) == 8


def test_the_mode_import_needs_a_place_without_schemas_or_force(log) -> None:
    log.register("a", INT)
    with refused(42205):
        set_mode(log.state, None, Mode.IMPORT, force=False)
    log.write(set_mode(log.state, "b", Mode.IMPORT, force=False))
    log.write(set_mode(log.state, None, Mode.IMPORT, force=True))
    log.write(set_mode(log.state, None, Mode.READWRITE, force=False))
    log.write(delete_subject(log.state, "a", permanent=False))
    log.write(set_mode(log.state, None, Mode.IMPORT, force=False))
    assert log.state.subjects(with_deleted=True) == []


def test_levels_of_a_subject_count_above_the_registrys(log) -> None:
    assert log.state.level("a") is Level.BACKWARD
    log.write(set_config(log.state, None, {"compatibilityLevel": "FULL"}))
    log.write(set_config(log.state, "a", {"compatibilityLevel": "NONE"}))
    assert (log.state.level("a"), log.state.level("b")) == (Level.NONE, Level.FULL)
    assert log.write(delete_config(log.state, "a")) == "NONE"
    assert log.state.level("a") is Level.FULL
    with refused(40401):
        delete_config(log.state, "a")
    log.write(delete_config(log.state, None))
    assert log.state.level("a") is Level.BACKWARD


@pytest.mark.parametrize(
    ("level", "compared"),
    [
        (Level.NONE, []),
        (Level.BACKWARD, [2]),
        (Level.FORWARD, [2]),
        (Level.FULL, [2]),
        (Level.BACKWARD_TRANSITIVE, [2, 1]),
        (Level.FORWARD_TRANSITIVE, [2, 1]),
        (Level.FULL_TRANSITIVE, [2, 1]),
    ],
)
def test_a_level_says_which_versions_are_compared(log, level, compared) -> None:
    log.register("a", INT)
    log.register("a", LONG)
    versions = log.state.versions("a")
    assert [each.version for each in compared_with(level, versions, None, None)] == compared


def test_a_group_of_compatibility_compares_within_it(log) -> None:
    for text, owner in ((INT, "x"), (LONG, "y"), (STRING, "x")):
        log.register("a", text, metadata={"properties": {"owner": owner}})
    metadata = {"properties": {"owner": "y"}}
    versions = log.state.versions("a")
    found = compared_with(Level.BACKWARD_TRANSITIVE, versions, "owner", metadata)
    assert [each.version for each in found] == [2]


@pytest.mark.parametrize("name", ["", ":.ctx:a", "a\nb", "__GLOBAL", "x" * 2_000])
def test_subjects_that_are_not_served_are_refused(name) -> None:
    with refused(42208):
        check_subject(name)


def test_the_mark_of_the_default_context_is_no_part_of_the_name() -> None:
    assert [check_subject(":.:a"), check_subject("a/ü")] == ["a", "a/ü"]
