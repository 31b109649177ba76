"""Reads records of topics, alone or as a member of a group: the public consumer.

    from storage_engine.client import Consumer

    config = {"bootstrap.servers": "127.0.0.1:9092", "group.id": "billing"}
    with Consumer(config) as consumer:
        consumer.subscribe(["clicks"])
        for record in consumer:
            print(record.partition, record.offset, record.key, record.value)

    with Consumer({"bootstrap.servers": "127.0.0.1:9092"}) as consumer:
        consumer.assign(consumer.partitions_of("clicks"))
        table = consumer.poll_table()

Records of a topic with a schema are JSON rows; `poll_table` returns its columns. A record that was
handed out counts as read once the next records are asked for; `commit` stores, and `position`
tells, where each partition goes on. A record is handed out again after a crash, and never left out.
For one thread, any other's calls but `close` fail; a second one, of the consumer's own, keeps the
membership. Source: R-CLI2; the
errors are in `consumer_errors`.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from storage_engine.client.closing import Closing
from storage_engine.client.cluster import EARLIEST, LATEST
from storage_engine.client.consumer.consumer_config import CONSUMER_PROTOCOL, ConsumerConfig
from storage_engine.client.consumer.consumer_coordinator import (
    Change,
    ConsumerCoordinator,
    OffsetsCommitted,
)
from storage_engine.client.consumer.consumer_lookups import ConsumerLookups, check_offset
from storage_engine.client.consumer.consumer_positions import Positions
from storage_engine.client.consumer.consumer_record import ConsumerRecord
from storage_engine.client.consumer.member_requests import re2_text
from storage_engine.client.consumer.membership import Assigned, Revoked
from storage_engine.client.consumer.record_buffer import Piece, PolledTable
from storage_engine.client.consumer.subscription import Subscription
from storage_engine.client.fetching.typed_reading import Selection
from storage_engine.client.groups.group_requests import NOBODY, GroupMetadata, MemberIdentity
from storage_engine.client.security.security_rows import Given
from storage_engine.client.turn import Turn, in_turn
from storage_engine.core.errors import ConfigError, HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, monotonic_ms, sleep_ms

if TYPE_CHECKING:
    import pyarrow as pa

OnPartitions = Callable[[list[TopicPartition]], None]
"""Hears of partitions that come or go, in the consumer's thread."""

OnCommitted = Callable[[HeadraceError | None], None]
"""Hears how a commit ended, in the consumer's thread."""

POLL_MS = 1_000

_SLICE_MS = 100
"""The group is looked after so often while records are waited for."""

_CLOSE_MS = 5_000
"""How long `close` waits for the answers to commits."""


class Consumer(ConsumerLookups, Closing):
    """Use it in a `with` block, or `close` it: its partitions go to other members at once then."""

    def __init__(self, config: Given) -> None:
        """`config`: see `consumer_config.SETTINGS`, Kafka's keys, values also as text; ConfigError
        for a wrong one. Opens nothing before the first call."""
        super().__init__(ConsumerConfig.of(config), Turn("consumer", self._end, waits=False))
        self._positions = Positions(self._config, identity=self._identity)
        self._group: ConsumerCoordinator | None = None
        self._caller: MemberIdentity = NOBODY
        self._subscription: Subscription | None = None
        self._on_assigned: OnPartitions | None = None
        self._on_revoked: OnPartitions | None = None
        self._on_lost: OnPartitions | None = None
        self._failure: HeadraceError | None = None
        self._auto_commit_ms = 0
        # What iteration is at: rows of this piece, so many until the group is looked after.
        self._piece: Piece | None = None
        self._rows: list[ConsumerRecord] = []
        self._run_left = 0

    # --- what is read ---

    @in_turn
    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        *,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Share topics with the other members of the group: names, or a compiled pattern that whole
        names match. Takes the place of what was subscribed before.

        The callbacks run within `poll`, or whatever else reads: `on_assigned` before the first
        record of the partitions (it may `seek`), `on_revoked` while they are still this member's
        (it may `commit`), `on_lost` when another may have them already (None: as `on_revoked`).
        With group.protocol=consumer they hear of what comes or goes, and the rest is read on.
        """
        if self._config.group_id is None:
            raise ConfigError("subscribe needs a group.id; give one, or assign partitions")
        if self._subscription is None and self._positions.assigned:
            raise ConfigError("partitions are assigned; unsubscribe before you subscribe")
        if isinstance(topics, re.Pattern):
            if self._config.group_protocol == CONSUMER_PROTOCOL:
                re2_text(topics)
            subscription = Subscription(pattern=topics)
        else:
            subscription = Subscription(topics=frozenset(_names(topics)))
        self._subscription, self._failure = subscription, None
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._on_lost = on_lost or on_revoked
        self._thread().subscribe(subscription)

    @in_turn
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, outside of any sharing; a `group.id` serves to commit only. What was
        assigned before and is still, goes on where it is."""
        if self._subscription is not None:
            raise ConfigError("topics are subscribed; unsubscribe before you assign partitions")
        self._stop_run()
        self._positions.assign(TopicPartition(*tp) for tp in partitions)
        self._auto_commit_ms = monotonic_ms() + self._config.auto_commit_interval_ms

    @in_turn
    def unsubscribe(self) -> None:
        """Leave the group, and read nothing any more."""
        self._release_partitions(lost=False, commits=self._config.enable_auto_commit)
        if self._subscription is not None and self._group is not None:
            self._group.unsubscribe()
        self._subscription, self._caller, self._failure = None, NOBODY, None

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the consumer reads now."""
        return frozenset(self._positions.assigned)

    # --- records ---

    @in_turn
    def poll(
        self, timeout_ms: int = POLL_MS, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """The next records, at most `max_records` (None: `max.poll.records`); none when none has
        come in time. Waits longer than `timeout_ms` only for a broker that hangs, and for
        callbacks."""
        self._stop_run()
        self._positions.read_as(None)
        limit = self._config.most_records(max_records)
        deadline = Deadline.after(timeout_ms)
        while self._fill(deadline):
            if rows := self._positions.take_rows(limit):
                if self._turn.is_ending:
                    self._take_back(
                        {TopicPartition(row[0], row[1]): row.offset for row in reversed(rows)}
                    )
                return rows
        return []

    def poll_table(
        self,
        timeout_ms: int = POLL_MS,
        *,
        columns: Iterable[str] | None = None,
        where: str | None = None,
    ) -> "pa.Table":
        """Like `poll`, but returns an Arrow table with all records that have arrived: topic,
        partition, offset, timestamp, timestampType, key, value, headers. It has no rows when none
        has arrived in time.

        A topic with a schema gives its columns: all that are not hidden, or the named ones, which
        brokers then send alone; those of metadata are in `typed_reading`. `where` has comparisons
        joined by AND ("fare > 10 AND id IN (1, 2)"): other rows are left out. Rows of earlier
        versions of the schema have nulls in newer columns; those come with the first row that has
        them. Topics that are read together need the same columns. ConfigError says what is wrong
        with `columns` and `where`; with others than before, what is fetched is fetched anew.
        """
        return self.poll_rows(timeout_ms, columns=columns, where=where).table

    @in_turn
    def poll_rows(
        self,
        timeout_ms: int = POLL_MS,
        *,
        columns: Iterable[str] | None = None,
        where: str | None = None,
    ) -> PolledTable:
        """Like `poll_table`, and says where the rows begin."""
        # Imported now: it brings Arrow.
        import pyarrow as pa

        self._stop_run()
        self._positions.read_as(Selection.of(columns, where))
        deadline = Deadline.after(timeout_ms)
        while self._fill(deadline):
            if taken := self._positions.take_batches():
                table = pa.Table.from_batches([each.rows for each in taken])
                firsts: dict[TopicPartition, int] = {}
                for each in taken:
                    firsts.setdefault(each.tp, each.first_offset)
                if self._turn.is_ending:
                    self._take_back(firsts)
                return PolledTable(table, firsts)
        return PolledTable(self._positions.shape(self._topics()).empty_table(), {})

    def _topics(self) -> Iterable[str]:
        """The topics that are read, or will be."""
        if self._positions.assigned or self._subscription is None:
            return {tp.topic for tp in self._positions.assigned}
        return self._subscription.topics or ()

    def tables(
        self, *, columns: Iterable[str] | None = None, where: str | None = None
    ) -> Iterator["pa.Table"]:
        """Tables with rows, for ever; see `poll_table`."""
        names = Selection.of(columns, where).columns
        while True:
            table = self.poll_table(columns=names, where=where)
            if table.num_rows:
                yield table

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records, for ever. Each counts as read when the next one is asked for, or `commit` is
        called."""
        return self

    def __next__(self) -> ConsumerRecord:
        while not self.ready(_SLICE_MS):
            pass
        self._run_left -= 1
        piece = self._piece
        assert piece is not None, "a run has a piece"
        record = self._rows[piece.index]
        piece.index += 1
        return record

    def ready(self, timeout_ms: int) -> int:
        """The number of records that iteration can return without waiting, once there is one; 0
        when none has arrived in time. It returns no record itself."""
        if not self._run_left:
            with self._turn:
                self._begin_run(Deadline.after(timeout_ms))
        return self._run_left

    def _begin_run(self, deadline: Deadline) -> None:
        self._positions.read_as(None)
        if not self._fill(deadline):
            return
        piece = self._piece = self._positions.next_piece()
        if piece is not None:
            self._rows = piece.rows
            self._run_left = min(piece.count - piece.index, self._config.max_poll_records)

    def _stop_run(self) -> None:
        self._piece, self._rows, self._run_left = None, [], 0

    def _fill(self, deadline: Deadline) -> bool:
        """Polls the group, and fetches until something is buffered; False when the time is over."""
        while True:
            self._turn.check()
            self._serve()
            if self._positions.next_piece() is not None:
                return True
            if deadline.passed:
                return False
            wait_ms = min(deadline.left_ms, _SLICE_MS)
            if not self._positions.fetch(wait_ms):
                sleep_ms(wait_ms)

    def _take_back(self, firsts: Mapping[TopicPartition, int]) -> None:
        """A handler has closed the consumer meanwhile: what was taken is not handed out, so that
        nobody commits it. Raises that it is closed."""
        for tp, offset in firsts.items():
            self._positions.seek(tp, offset)
        self._turn.check()

    # --- where it is ---

    @in_turn
    def position(self, tp: TopicPartition) -> int:
        """The offset of the next record of a partition; DeadlineExceededError when it can't be
        found out in time."""
        self._check_assigned(tp)
        deadline = Deadline.after(self._config.default_api_timeout_ms)
        while (offset := self._positions.known().get(tp)) is None:
            self._positions.find()
            self._turn.check()
            deadline.check(f"the position of {tp} was not found")
        return offset

    @in_turn
    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Moves the position in a partition."""
        check_offset(tp, offset)
        self._seek(tp, offset)

    def _seek(self, tp: TopicPartition, offset: int) -> None:
        self._check_assigned(tp)
        self._stop_run()
        self._positions.seek(tp, offset)

    @in_turn
    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Moves the positions to the first record of these partitions; None means all assigned
        ones."""
        self._seek_all(partitions, EARLIEST)

    @in_turn
    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Moves the positions behind the last record of these partitions; None means all assigned
        ones."""
        self._seek_all(partitions, LATEST)

    def _seek_all(self, partitions: Iterable[TopicPartition] | None, end: int) -> None:
        wanted = self.assignment if partitions is None else [*partitions]
        found = self._offsets(wanted, end)
        for tp, offset in found.items():
            self._seek(tp, offset)

    @in_turn
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Returns no records of these partitions until `resume`; they stay assigned to this member
        as long as it polls."""
        self._set_paused(partitions, paused=True)

    @in_turn
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._set_paused(partitions, paused=False)

    def _set_paused(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        self._stop_run()
        for tp in partitions:
            self._check_assigned(tp)
            self._positions.pause(TopicPartition(*tp), paused=paused)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._positions.paused)

    # --- what is committed ---

    @in_turn
    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        asynchronous: bool = False,
        callback: OnCommitted | None = None,
    ) -> None:
        """Store where the group goes on: `offsets`, by partition the next one to read, or the
        positions. CommitRefusedError when the partitions are another's by now. `asynchronous`
        returns at once; the next `poll` passes its outcome to `callback`."""
        group = self._thread()
        wanted = self._positions.known() if offsets is None else offsets
        for tp, offset in wanted.items():
            check_offset(tp, offset)
        if not wanted:
            if callback is not None:
                with self._turn.lent():
                    callback(None)
            return
        commit = group.commit(wanted, self._caller, callback)
        if not asynchronous:
            group.wait_for(commit)

    def group_metadata(self) -> GroupMetadata:
        """The metadata that a producer's `send_offsets_to_transaction` needs."""
        group = self._group_id("group_metadata")
        known = self._identity()
        return GroupMetadata(
            group, known.generation, known.member_id, self._config.group_instance_id
        )

    # --- the end ---

    def close(self) -> None:
        """Commit where that is automatic, and leave the group. In a signal handler or from another
        thread: the call that is at work does it, and raises that the consumer is closed."""
        self._turn.end()

    def _end(self, after_error: bool) -> None:
        try:
            commits = self._config.enable_auto_commit and not after_error
            self._release_partitions(lost=False, commits=commits, timeout_ms=_CLOSE_MS)
        finally:
            if self._group is not None:
                self._group.close(_CLOSE_MS)
            self._positions.close()
            self._cluster.close()

    def _close_after_error(self) -> None:
        """Commit nothing: what was read since the last commit comes again."""
        self._turn.end_after_error()

    # --- the group ---

    def _thread(self) -> ConsumerCoordinator:
        self._group_id("commit")
        if self._group is None:
            self._group = ConsumerCoordinator(self._config)
        return self._group

    def _serve(self) -> None:
        """Apply what has become of the group, commit when it is time, find out where to read."""
        if self._group is not None:
            while (change := self._group.next_change()) is not None:
                self._apply(change)
            if self._failure is not None:
                raise self._failure
            now_ms = monotonic_ms()
            if self._config.enable_auto_commit and now_ms >= self._auto_commit_ms:
                self._auto_commit_ms = now_ms + self._config.auto_commit_interval_ms
                if positions := self._positions.known():
                    self._group.commit(positions, self._caller)
        elif self._config.enable_auto_commit and self._positions.assigned:
            self._thread()
        self._positions.find()

    def _apply(self, change: Change) -> None:
        match change:
            case Revoked():
                try:
                    commits = self._config.enable_auto_commit and not change.lost
                    self._release_partitions(change.partitions, lost=change.lost, commits=commits)
                finally:
                    assert self._group is not None, "it told of the change"
                    self._group.released(change.partitions)
            case Assigned():
                self._caller = change.caller
                self._stop_run()
                kept = tuple(self._positions.assigned) if change.more else ()
                self._positions.assign((*kept, *change.partitions))
                self._auto_commit_ms = monotonic_ms() + self._config.auto_commit_interval_ms
                if self._on_assigned is not None:
                    with self._turn.lent():
                        self._on_assigned(list(change.partitions))
            case OffsetsCommitted():
                with self._turn.lent():
                    change.callback(change.error)
            case _:
                self._failure = change.error

    def _release_partitions(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        lost: bool,
        commits: bool,
        timeout_ms: int | None = None,
    ) -> None:
        """Commits and gives up these partitions, or all; others are read on. Records whose offsets
        can't be committed within `timeout_ms` are read again."""
        self._stop_run()
        assigned = self._positions.assigned
        gone = sorted(assigned if partitions is None else assigned.keys() & partitions)
        try:
            known = self._positions.known()
            positions = {tp: known[tp] for tp in gone if tp in known}
            if commits and positions and self._group is not None:
                with contextlib.suppress(HeadraceError):
                    commit = self._group.commit(positions, self._caller, timeout_ms=timeout_ms)
                    self._group.wait_for(commit)
            hears = self._on_lost if lost else self._on_revoked
            if hears is not None and gone and self._subscription is not None:
                with self._turn.lent():
                    hears(gone)
        finally:
            left = dict.fromkeys(self._positions.assigned)
            for tp in gone:
                left.pop(tp, None)
            self._positions.assign(left)

    def _identity(self) -> MemberIdentity:
        return self._caller if self._group is None else self._group.identity(self._caller)

    def _check_assigned(self, tp: TopicPartition) -> None:
        if tp not in self._positions.assigned:
            raise ConfigError(f"{TopicPartition(*tp)} is not assigned to this consumer")


def _names(topics: Iterable[str]) -> list[str]:
    if isinstance(topics, str):
        raise ConfigError(f"subscribe expects a list of topics; give ['{topics}']")
    return [*topics]
