"""What exactly once means, as a judgement of what was read. It knows nothing of how the rows were
written; every complaint names the partition, the offset, the batch or the ids.

A row's value is `<batch>/<id>,<id>,…:<anything>`: the micro-batch that wrote it, and the unique ids
of the input rows that it stands for.

    ids       each exactly once
    order     within a partition the batches ascend
    whole     wherever a reader stood at the end of what it could see, no batch was there in part
    offsets   a reader that was there all along saw all that is there, at the same offsets
    prompt    a batch is readable everywhere within a second of its commit record

Source: R-SPARK2; docs/sink-protocol.md.
"""

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

SHOWN = 5
"""Of each kind of complaint."""

PROMPT_S = 1.0
"""From the commit record to the last of the partitions, while all brokers are up."""


@dataclass(frozen=True, slots=True)
class Row:
    """A committed record."""

    offset: int
    value: bytes

    @property
    def batch(self) -> int:
        return int(self.value.partition(b"/")[0])

    @property
    def ids(self) -> list[int]:
        listed = self.value.partition(b"/")[2].partition(b":")[0]
        return [int(each) for each in listed.split(b",")]


@dataclass(slots=True)
class Watched:
    """What a reader saw of one partition while others wrote."""

    rows: dict[int, int] = field(default_factory=dict)
    """Offset -> hash of the value, in the order in which they came."""
    looks: list[int] = field(default_factory=list)
    """Positions at which it had seen all that was readable, each one once in a row."""
    seen_at: dict[int, float] = field(default_factory=dict)
    """Batch -> when its last row came, in seconds since 1970."""

    def note_row(self, row: Row, now_s: float) -> None:
        self.rows[row.offset] = hash(row.value)
        self.seen_at[row.batch] = now_s

    def note_end(self, position: int) -> None:
        if not self.looks or self.looks[-1] != position:
            self.looks.append(position)


Partitions = Mapping[int, Sequence[Row]]
"""All rows in the order of their offsets."""


def ids_once(found: Partitions, expected: Iterable[int]) -> list[str]:
    counts = Counter(each for rows in found.values() for row in rows for each in row.ids)
    wanted = set(expected)
    lost = sorted(wanted - counts.keys())
    doubled = sorted(each for each, count in counts.items() if count > 1)
    foreign = sorted(counts.keys() - wanted)
    return [
        f"{len(which)} ids {what}: {which[:SHOWN]}"
        for what, which in (("lost", lost), ("doubled", doubled), ("nobody's", foreign))
        if which
    ]


def batches_in_order(found: Partitions) -> list[str]:
    complaints = []
    for partition, rows in found.items():
        for before, row in itertools.pairwise(rows):
            if row.batch < before.batch:
                complaints.append(
                    f"partition {partition}: batch {row.batch} at offset {row.offset} is behind "
                    f"batch {before.batch}"
                )
    return complaints[:SHOWN]


def batches_whole(found: Partitions, watched: Mapping[int, Watched]) -> list[str]:
    """Needs `batches_in_order`."""
    complaints = []
    for partition, rows in found.items():
        offsets = [row.offset for row in rows]
        for position in watched[partition].looks:
            next_index = bisect_left(offsets, position)
            if not 0 < next_index < len(rows):
                continue
            last, first = rows[next_index - 1], rows[next_index]
            if last.batch == first.batch:
                complaints.append(
                    f"partition {partition}: a reader at {position} saw batch {last.batch} only "
                    f"up to offset {last.offset}, and it goes on at {first.offset}"
                )
    return complaints[:SHOWN]


def offsets_kept(found: Partitions, watched: Mapping[int, Watched]) -> list[str]:
    complaints = []
    for partition, rows in found.items():
        there = {row.offset: hash(row.value) for row in rows}
        seen = watched[partition].rows
        moved = [offset for offset, value in seen.items() if there.get(offset) != value]
        if moved:
            complaints.append(
                f"partition {partition}: other rows than a reader saw at {moved[:SHOWN]}"
            )
        if list(seen) != sorted(seen):
            complaints.append(f"partition {partition}: a reader went back")
        unseen = sorted(there.keys() - seen.keys())
        if unseen:
            complaints.append(
                f"partition {partition}: a reader that was there all along never saw {len(unseen)} "
                f"of {len(there)} rows: {unseen[:SHOWN]}"
            )
    return complaints


def delays_s(watched: Mapping[int, Watched], committed_at: Mapping[int, float]) -> dict[int, float]:
    """Of each batch that is committed: until its last row was read, in all partitions."""
    delays = {}
    for batch, moment in committed_at.items():
        seen = [each.seen_at[batch] for each in watched.values() if batch in each.seen_at]
        if seen:
            delays[batch] = max(seen) - moment
    return delays


def prompt(delays: Mapping[int, float], *, limit_s: float = PROMPT_S) -> list[str]:
    late = {batch: delay for batch, delay in delays.items() if delay > limit_s}
    return [
        f"batch {batch} was readable {delay:.2f} s after its commit record, not within {limit_s} s"
        for batch, delay in list(late.items())[:SHOWN]
    ]


def judge(found: Partitions, watched: Mapping[int, Watched], expected: Iterable[int]) -> list[str]:
    """All but promptness, which is of undisturbed brokers only. Empty: exactly once."""
    return [
        *ids_once(found, expected),
        *(batches_in_order(found) or batches_whole(found, watched)),
        *offsets_kept(found, watched),
    ]
