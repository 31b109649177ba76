"""Elections that a client or an operator asked for, and how each ended.

The controller decides as it always does. This module only notices when the decision on a partition
is over, and answers how it ended. Source: R-CTL7, R-TOOL3, R-REP9; KIP-460.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from storage_engine.core.control.controller import Controller
from storage_engine.core.control.controller_events import ElectionRequested
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import NO_LEADER, TopicPartition

OnElected = Callable[[dict[TopicPartition, ErrorCode] | None], None]
"""Called once, with each partition's outcome; None when another controller continues."""


@dataclass(slots=True, kw_only=True)
class _Election:
    """A request for elections that is not answered yet."""

    open: set[TopicPartition]
    unclean: bool
    on_elected: OnElected
    outcomes: dict[TopicPartition, ErrorCode] = field(default_factory=dict)


class Elections:
    """The requests for elections that are not answered yet."""

    def __init__(
        self,
        core: Controller,
        *,
        submit: Callable[[ElectionRequested], None],
        refresh: Callable[[tuple[TopicPartition, ...], Callable[[], None]], None],
    ) -> None:
        """`refresh(partitions, then)` reads their states first: a replica that has come back into
        an ISR may not be known yet."""
        self._refresh = refresh
        self._core = core
        self._submit = submit
        self._waiting: list[OnElected] = []
        """The requests whose elections have not begun."""
        self._under_way: list[_Election] = []

    def request(
        self, partitions: Iterable[TopicPartition], on_elected: OnElected, *, unclean: bool
    ) -> None:
        wanted = tuple(dict.fromkeys(partitions))

        def refreshed() -> None:
            self._begin(_Election(open=set(), unclean=unclean, on_elected=on_elected), wanted)

        self._waiting.append(on_elected)
        self._refresh(wanted, refreshed)

    def _begin(self, election: _Election, partitions: Iterable[TopicPartition]) -> None:
        self._waiting.remove(election.on_elected)
        for partition in partitions:
            code = self._not_to_be_held(partition, election.unclean)
            if code is None:
                election.open.add(partition)
            else:
                election.outcomes[partition] = code
        wanted = tuple(sorted(election.open))
        self._under_way.append(election)
        if wanted:
            self._submit(ElectionRequested(partitions=wanted, unclean=election.unclean))
        else:
            self.answer_settled()

    def answer_settled(self) -> None:
        """Answer the requests whose elections are over. To be called after each step of the
        controller."""
        over = []
        for election in self._under_way:
            for partition in [tp for tp in election.open if self._core.is_settled(tp)]:
                election.open.discard(partition)
                election.outcomes[partition] = self._outcome(partition, election.unclean)
            if not election.open:
                over.append(election)
        for election in over:
            self._under_way.remove(election)
            election.on_elected(election.outcomes)

    def close(self) -> None:
        waiting = [*self._waiting, *(election.on_elected for election in self._under_way)]
        self._waiting, self._under_way = [], []
        for on_elected in waiting:
            on_elected(None)

    def _not_to_be_held(self, partition: TopicPartition, unclean: bool) -> ErrorCode | None:
        if self._core.preferred_replica(partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._core.is_settled(partition) and self._is_led_well(partition, unclean):
            return ErrorCode.ELECTION_NOT_NEEDED
        return None

    def _outcome(self, partition: TopicPartition, unclean: bool) -> ErrorCode:
        if self._is_led_well(partition, unclean):
            return ErrorCode.NONE
        if self._core.preferred_replica(partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if unclean:
            return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

    def _is_led_well(self, partition: TopicPartition, unclean: bool) -> bool:
        state = self._core.state(partition)
        if state is None or state.leader == NO_LEADER:
            return False
        return unclean or state.leader == self._core.preferred_replica(partition)
