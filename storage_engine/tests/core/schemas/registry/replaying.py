"""A log of a registry in memory, and what a state answers, for comparison."""

from typing import Any

from storage_engine.core.schemas.languages import Schema, SchemaType, parse
from storage_engine.core.schemas.registry.changes import (
    Candidate,
    PlannedChange,
    register,
    registered,
)
from storage_engine.core.schemas.registry.records import Json, Record
from storage_engine.core.schemas.registry.state import RegistryState


class MemoryLog:
    """Records with the state that they make, as a writer has it."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.state = RegistryState()

    def write(self, change: PlannedChange) -> Json:
        for key, value in change.records:
            self.append(key, value)
        return change.answer

    def append(self, key: bytes | None, value: bytes | None) -> str | None:
        self.records.append((key, value))
        return self.state.apply(key, value)

    def register(self, subject: str, text: str, **more: Any) -> int:
        known = candidate(subject, text, **more)
        stored = registered(self.state, known)
        if stored is not None:
            return stored.id
        answer = self.write(register(self.state, known))
        assert isinstance(answer, int)
        return answer

    def replayed(self) -> RegistryState:
        return replayed(self.records)

    def compacted(self, *, with_tombstones: bool = False) -> list[Record]:
        """What a compacted topic keeps: of each key the last record, in its order."""
        last = {key: place for place, (key, _) in enumerate(self.records)}
        return [
            (key, value)
            for place, (key, value) in enumerate(self.records)
            if last[key] == place and (with_tombstones or value is not None)
        ]


def replayed(records: list[Record]) -> RegistryState:
    state = RegistryState()
    for key, value in records:
        state.apply(key, value)
    return state


def avro(text: str, references: tuple = ()) -> Schema:
    return Schema(SchemaType.AVRO, text, references)


def candidate(subject: str, text: str, **more: Any) -> Candidate:
    schema = avro(text)
    return Candidate(subject=subject, schema=schema, parsed=parse(schema, {}), **more)


def answers(state: RegistryState) -> dict[str, Any]:
    """All that a state can be asked."""
    subjects = state.subjects(with_deleted=True)
    return {
        "subjects": (subjects, state.subjects()),
        "versions": [
            (each.subject, each.version, each.id, each.schema, each.is_deleted)
            for each in state.all_versions()
        ],
        "ids": {
            each.id: [(other.subject, other.version) for other in state.with_id(each.id)]
            for each in state.all_versions()
        },
        "levels": {name: state.level(name) for name in [None, *subjects]},
        "configs": {name: state.own_config(name) for name in [None, *subjects]},
        "modes": {name: (state.mode(name), state.own_mode(name)) for name in [None, *subjects]},
        "highest": state.highest_id,
    }
