"""The interfaces between the runner of a coordinator and one kind of coordinator, for groups or for
transactions: the state machine that decides (`Core`), and the part that carries out its decisions
beside log and answers (`Carrier`). The answers are the same for both kinds (`PendingAnswers`).
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from storage_engine.broker.unexpected import report
from storage_engine.core.coordinator_log import (
    Answer,
    AnswerEach,
    AppendRecord,
    CountAppended,
    EntryT,
    Moment,
    Replicated,
    TickAgain,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ports import Background, Clock, Scheduler

ANSWERS_A_TURN = 100
"""The answers encoded and written in one turn: some 30 µs each."""

AnswerT = TypeVar("AnswerT", bound=Answer)
OnAnswer = Callable[[AnswerT], None]


class PendingAnswers(Generic[AnswerT]):
    """The requests to one coordinator that wait for an answer, by number; each is answered once.
    Many answers at once, as to all members of a group, are spread over turns of the loop."""

    def __init__(self, scheduler: Scheduler, refusal: Callable[[int, ErrorCode], AnswerT]) -> None:
        self._scheduler = scheduler
        self._refusal = refusal
        self._waiting: dict[int, OnAnswer[AnswerT]] = {}
        self._due: deque[Iterator[AnswerT]] = deque()
        """Answers for this turn and the next ones."""
        self._is_scheduled = False

    def __contains__(self, number: int) -> bool:
        return number in self._waiting

    def expect(self, number: int, on_answer: OnAnswer[AnswerT]) -> None:
        self._waiting[number] = on_answer

    def give(self, number: int, answer: AnswerT) -> None:
        on_answer = self._waiting.pop(number)
        try:
            on_answer(answer)
        except Exception as failure:  # noqa: BLE001 - reported; the other requests go on
            report("an answer", failure)

    def give_each(self, answers: Iterator[AnswerT]) -> None:
        """Give some of the answers now, and the rest in later turns."""
        self._due.append(answers)
        if not self._is_scheduled:
            self._give_some()

    def refuse_all(self, code: ErrorCode) -> None:
        """Refuse all waiting requests, also where an answer is due."""
        numbers = list(self._waiting)
        self._due.clear()
        # Some may be answered between the turns, as by the rest of a step that has ended it all.
        self.give_each(self._refusal(number, code) for number in numbers if number in self)

    def _give_some(self) -> None:
        self._is_scheduled = False
        for _ in range(ANSWERS_A_TURN):
            answer = self._next()
            if answer is None:
                return
            self.give(answer.request, answer)
        self._is_scheduled = True
        self._scheduler.call_soon(self._give_some)

    def _next(self) -> AnswerT | None:
        while self._due:
            answer = next(self._due[0], None)
            if answer is not None:
                return answer
            self._due.popleft()
        return None


EventT = TypeVar("EventT")
EventT_contra = TypeVar("EventT_contra", contravariant=True)
EffectT = TypeVar("EffectT")
EffectT_contra = TypeVar("EffectT_contra", contravariant=True)
ContentT_contra = TypeVar("ContentT_contra", contravariant=True)

Effects = list[
    AppendRecord[EntryT] | CountAppended | AnswerT | AnswerEach[AnswerT] | TickAgain | EffectT
]


class Core(Protocol[EventT_contra, AnswerT, EffectT, EntryT, ContentT_contra]):
    """A coordinator's state machine: it gets events, returns effects, and does no IO."""

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

    def begin(self) -> None:
        """Called once, when the coordinator is restored."""
        ...

    def lead_on(self, leader_epoch: int) -> None:
        """Continues under a new leader epoch."""
        ...

    def close(self) -> None:
        """Stop for good, and ignore later answers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerPorts:
    """The parts of the broker that all runners share."""

    scheduler: Scheduler
    clock: Clock
    background: Background


def now(clock: Clock) -> Moment:
    """The present monotonic and wall time."""
    return Moment(clock.monotonic_ms(), clock.wall_ms())
