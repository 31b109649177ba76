"""A coordinator's state machine, and its driver's part that differs between the kinds."""

from collections.abc import Generator
from typing import Protocol, TypeVar

from storage_engine.broker.coordinators.pending_answers import AnswerT
from storage_engine.core.coordinator_log import (
    AnswerEach,
    AppendRecord,
    CountAppended,
    EntryT,
    Moment,
    Replicated,
    TickAgain,
)

EventT = TypeVar("EventT")
EventT_contra = TypeVar("EventT_contra", contravariant=True)
EffectT = TypeVar("EffectT")
EffectT_contra = TypeVar("EffectT_contra", contravariant=True)
ContentT_contra = TypeVar("ContentT_contra", contravariant=True)

Effects = list[
    AppendRecord[EntryT] | CountAppended | AnswerT | AnswerEach[AnswerT] | TickAgain | EffectT
]


class Core(Protocol[EventT_contra, AnswerT, EffectT, EntryT, ContentT_contra]):
    """A coordinator's state machine."""

    def restore(
        self, content: ContentT_contra, at: Moment, /
    ) -> Generator[
        None,
        None,
        Effects[EntryT, AnswerT, EffectT],
    ]:
        """In pieces, since clients choose how much there is."""
        ...

    def step(self, event: EventT_contra | Replicated, /) -> Effects[EntryT, AnswerT, EffectT]: ...


class Carrier(Protocol[EffectT_contra]):
    """Carries out the effects that only one kind of coordinator has."""

    def carry_out(self, effect: EffectT_contra, /) -> None: ...

    def lead_on(self, leader_epoch: int) -> None:
        """Continues under a new leader epoch."""
        ...

    def close(self) -> None:
        """Do and hear nothing more."""
        ...
