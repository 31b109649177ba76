"""Random changes: the state that is read from the log, compacted or not, is the live one, and no id
is given twice."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.schemas.registry.changes import (
    LATEST,
    delete_config,
    delete_mode,
    delete_subject,
    delete_version,
    set_config,
    set_mode,
)
from storage_engine.core.schemas.registry.records import Mode
from storage_engine.core.schemas.registry.registry_error import RegistryError
from storage_engine.tests.core.schemas.registry.replaying import MemoryLog, answers, replayed
from storage_engine.tests.sampling import examples

SUBJECTS = st.sampled_from(["a-key", "a-value", "b/ü"])
TEXTS = st.sampled_from(
    ['"int"', '"long"', '"string"', '{"type":"array","items":"int"}', '"bytes"', '"double"']
)
FLAGS = st.booleans()
STEPS = st.one_of(
    st.tuples(st.just("register"), SUBJECTS, TEXTS),
    st.tuples(st.just("delete version"), SUBJECTS, st.sampled_from([1, 2, LATEST]), FLAGS),
    st.tuples(st.just("delete subject"), SUBJECTS, FLAGS),
    st.tuples(st.just("config"), st.none() | SUBJECTS, st.sampled_from(["NONE", "FULL"])),
    st.tuples(st.just("no config"), st.none() | SUBJECTS),
    st.tuples(st.just("mode"), st.none() | SUBJECTS, st.sampled_from(list(Mode)), FLAGS),
    st.tuples(st.just("no mode"), st.none() | SUBJECTS),
    st.tuples(st.just("restart")),
    st.tuples(st.just("compaction"), FLAGS),
)


def carry_out(log: MemoryLog, step: tuple) -> None:
    state = log.state
    match step:
        case ["register", subject, text]:
            log.register(subject, text)
        case ["delete version", subject, version, permanent]:
            log.write(delete_version(state, subject, version, permanent=permanent))
        case ["delete subject", subject, permanent]:
            log.write(delete_subject(state, subject, permanent=permanent))
        case ["config", subject, level]:
            log.write(set_config(state, subject, {"compatibilityLevel": level}))
        case ["no config", subject]:
            log.write(delete_config(state, subject))
        case ["mode", subject, mode, force]:
            log.write(set_mode(state, subject, mode, force=force))
        case ["no mode", subject]:
            log.write(delete_mode(state, subject))
        case ["restart"]:
            log.state = log.replayed()
        case ["compaction", with_tombstones]:
            log.records = log.compacted(with_tombstones=with_tombstones)
            log.state = log.replayed()


@given(st.lists(STEPS, max_size=40))
@settings(max_examples=examples(2_000), deadline=None)
def test_a_replayed_state_is_the_live_one_and_no_id_is_given_twice(steps: list[tuple]) -> None:
    log = MemoryLog()
    texts: dict[int, str] = {}
    for step in steps:
        with contextlib.suppress(RegistryError):
            carry_out(log, step)
        for stored in log.state.all_versions():
            assert texts.setdefault(stored.id, stored.schema.text) == stored.schema.text
        assert answers(log.replayed()) == answers(log.state)
        for with_tombstones in (False, True):
            kept = log.compacted(with_tombstones=with_tombstones)
            assert answers(replayed(kept)) == answers(log.state)
    assert log.state.skipped == 0


def test_an_id_is_not_given_again_after_all_that_tells_of_it_is_compacted_away() -> None:
    log = MemoryLog()
    assert [log.register("a", '"int"'), log.register("a", '"long"')] == [1, 2]
    log.write(delete_subject(log.state, "a", permanent=False))
    log.write(delete_subject(log.state, "a", permanent=True))
    log.records = log.compacted()
    log.state = log.replayed()
    assert log.state.subjects(with_deleted=True) == []
    assert log.register("a", '"string"') == 3
