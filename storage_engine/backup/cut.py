"""The cut: which batches belong to the moment of a backup. Pure rules; `moment` does the reading.

A backup has, of each partition, a body and a tail:

    start ... body_end            every batch of the log
          body_end ... end        what belongs to the moment, batch by batch

The moment is the ends of the coordinators' logs, `moment.ends`. The bodies' ends were read before
it, so every marker in a body was decided before. The tails' ends are read when all markers of what
was decided are written. In a tail

1. a batch of a transaction, and its marker, belong to the moment if its end was decided before it;
2. other batches do, too, but not in the log of consumer groups, whose offsets must not be newer
   than the data that were read before them.

So a transaction is in all of its partitions or in none. One that has records in a body and was not
decided is open in the coordinator's log, too, and the brokers of the restored cluster abort it.

Which markers of a producer were decided before is counted, since neither its id nor its epoch
says so for each protocol. In a *round* the ends of coordinators' logs are read, then those of other
logs, then those of the coordinators' again. If a producer was not ending at the first, and nothing
was decided for it up to the second, then the others have exactly the markers that were decided up
to then: the last n of them, n decisions after the moment, are too late. Each producer that decides
anything after the moment needs such a round for each partition of these transactions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from storage_engine.backup.decisions import Decision, Decisions
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import BatchHeader

NEVER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Ends as they were read, in this order; of all logs, or of those of some producers."""

    state_ends: Mapping[int, int]
    """The ends of coordinators' logs."""
    ending: frozenset[int]
    """The producers whose markers may have been missing then."""
    ends: Mapping[TopicPartition, int]
    """The ends of other logs."""
    next_state_ends: Mapping[int, int]


@dataclass(slots=True)
class BackupMoment:
    """The moment of a backup, and what was read afterwards."""

    ends: Mapping[int, int]
    """The ends of the coordinators' logs."""
    decisions: Decisions
    """As far as the last round."""
    rounds: list[Round] = field(default_factory=list)
    origins: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The origins of all sinks at the moment: see `Decisions.origins`."""
    tail_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The ends of all other logs, behind every marker that was decided before the moment."""

    def late(self) -> list[int]:
        """The producers for which anything was decided after the moment."""
        return [each for each in self.decisions.by_producer if self._late_decisions(each)]

    def unclear(self) -> dict[int, frozenset[TopicPartition]]:
        """The late ones that no round tells about yet, with the partitions in question."""
        found = {}
        for producer_id in self.late():
            late = self._late_decisions(producer_id)
            partitions = frozenset().union(*(each.partitions for each in late))
            left = [tp for tp in partitions if self._clear_round(producer_id, tp) is None]
            if left:
                found[producer_id] = frozenset(left)
        return found

    def coordinator(self, producer_id: int) -> int:
        """The partition of the state log that has a late producer's decisions."""
        return self._late_decisions(producer_id)[0].at[0]

    def _late_decisions(self, producer_id: int) -> list[Decision]:
        return self.decisions.since(producer_id, self.ends)

    def _clear_round(self, producer_id: int, tp: TopicPartition) -> Round | None:
        coordinator = self.coordinator(producer_id)
        for each in self.rounds:
            if coordinator not in each.state_ends or tp not in each.ends:
                continue
            decided = self.decisions.since(producer_id, each.state_ends)
            next_end = each.next_state_ends[coordinator]
            busy = any(decision.at[1] < next_end for decision in decided)
            if producer_id not in each.ending and not busy:
                return each
        return None

    def last_marker(self, tp: TopicPartition, producer_id: int, markers: Sequence[int]) -> int:
        """The offset of the producer's last marker in a tail that was decided before the moment,
        of the ascending offsets of all; NEVER where there is none."""
        late = [each for each in self._late_decisions(producer_id) if tp in each.partitions]
        if not late:
            return markers[-1] if markers else NEVER
        clear = self._clear_round(producer_id, tp)
        assert clear is not None, "a cut is made when every producer is clear"
        known = [each for each in markers if each < clear.ends[tp]]
        too_late = sum(1 for each in late if each.at[1] < clear.state_ends[each.at[0]])
        kept = known[: max(0, len(known) - too_late)]
        return kept[-1] if kept else NEVER


@dataclass(slots=True)
class TailChoice:
    """The batches of one tail: `note` each, in order, then ask about each."""

    tp: TopicPartition
    moment: BackupMoment
    keeps_plain: bool
    """Whether batches that are in no transaction belong to the moment."""
    _markers: dict[int, list[int]] = field(default_factory=dict)
    _last: dict[int, int] = field(default_factory=dict)

    def note(self, header: BatchHeader) -> None:
        if header.is_transactional and header.is_control:
            self._markers.setdefault(header.producer_id, []).append(header.base_offset)

    def keeps(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return self.keeps_plain
        producer_id = header.producer_id
        if producer_id not in self._last:
            markers = self._markers.get(producer_id, ())
            self._last[producer_id] = self.moment.last_marker(self.tp, producer_id, markers)
        return header.base_offset <= self._last[producer_id]


def first_beyond(
    positions: Iterable[tuple[TopicPartition, int]], dropped: Mapping[TopicPartition, int]
) -> TopicPartition | None:
    """A partition of which a position, exclusive, lies behind the first offset that was left out
    because it was decided too late: whoever has that position has read it, so that the moment
    differs between coordinators. None where there is none."""
    for tp, position in positions:
        if tp in dropped and position > dropped[tp]:
            return tp
    return None
