"""What is registered of a typed topic, and what is told where that can't be."""

from typing import Any

from headrace_registry.typed_topics.subject_names import subject_of, topic_of
from headrace_registry.typed_topics.topic_subjects import TopicSubjects
from storage_engine.core.schemas.registry.changes import delete_subject, delete_version
from storage_engine.core.schemas.registry.registry_error import INCOMPATIBLE, RegistryError
from storage_engine.core.typed.avro_text import avro_text
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.tests.core.schemas.registry.replaying import MemoryLog

FIRST = new_schema(parse_ddl("id INT"), ["id"])
SECOND = FIRST.evolved(parse_ddl("id INT, b INT"))
THIRD = SECOND.evolved(parse_ddl("id INT, b INT, c STRING"))
SUBJECT = "rides-value"


class Calls:
    """Registers in a log in memory, or refuses."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.refusal = ""

    def register(self, subject: str, given: Any, **_named: Any) -> int:
        if self.refusal:
            raise RegistryError(INCOMPATIBLE, self.refusal)
        return self.log.register(subject, given.schema.text)

    def candidate(self, subject: str, given: Any, **_named: Any) -> Any:
        return given

    def reasons(self, candidate: Any, **_named: Any) -> list[str]:
        return [self.refusal] if self.refusal else []

    def texts(self) -> list[str]:
        return [each.schema.text for each in self.log.state.versions(SUBJECT)]


def subjects(calls: Calls, *, is_writer: bool = True) -> TopicSubjects:
    return TopicSubjects(
        lambda: None,  # type: ignore[arg-type, return-value]
        calls,  # type: ignore[arg-type]
        lambda question: question(calls.log.state),
        lambda: is_writer,
    )


def text(number: int) -> str:
    return avro_text(THIRD, THIRD.version(number), "rides")


def test_all_versions_are_registered_in_order_and_once() -> None:
    calls = Calls()
    topics = subjects(calls)
    for _ in range(2):
        assert topics._problem("rides", THIRD) is None
        assert calls.texts() == [text(1), text(2), text(3)]


def test_only_what_follows_the_newest_version_is_registered() -> None:
    calls = Calls()
    topics = subjects(calls)
    assert topics._problem("rides", SECOND) is None
    for permanent in (False, True):
        calls.log.write(delete_version(calls.log.state, SUBJECT, 1, permanent=permanent))
    assert topics._problem("rides", THIRD) is None
    assert calls.texts() == [text(2), text(3)]


def test_what_was_deleted_softly_stays_deleted_and_for_good_comes_back() -> None:
    calls = Calls()
    topics = subjects(calls)
    topics._problem("rides", SECOND)
    calls.log.write(delete_subject(calls.log.state, SUBJECT, permanent=False))
    assert topics._problem("rides", SECOND) is None
    assert calls.texts() == []
    calls.log.write(delete_subject(calls.log.state, SUBJECT, permanent=True))
    assert topics._problem("rides", SECOND) is None
    assert calls.texts() == [text(1), text(2)]


def test_a_refusal_is_told_by_the_writer_and_by_the_others() -> None:
    for is_writer in (True, False):
        calls = Calls()
        calls.refusal = "it is another schema"
        assert subjects(calls, is_writer=is_writer)._problem("rides", FIRST) == calls.refusal
        assert calls.texts() == []


def test_who_does_not_write_registers_nothing_and_has_no_problem() -> None:
    calls = Calls()
    assert subjects(calls, is_writer=False)._problem("rides", THIRD) is None
    assert calls.texts() == []


def test_columns_that_avro_can_not_have_are_told() -> None:
    odd = new_schema(parse_ddl("`the id` INT"), [])
    problem = subjects(Calls())._problem("rides", odd)
    assert problem is not None and "'the id'" in problem


def test_a_subject_is_that_of_its_topic_alone() -> None:
    assert topic_of(subject_of("rides-value")) == "rides-value"
    assert topic_of("rides-key") is None
