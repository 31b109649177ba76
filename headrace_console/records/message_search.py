"""Search the records of a topic within bounds, and follow its end.

    for event in search.events(): …      Rows, Progress, Trouble, at last End

A step takes a second at most, so a search whose page is closed ends soon: its caller stops asking.
A batch that can't be read is reported, and skipped. Source: R-CON8.
"""

import contextlib
import heapq
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from headrace_console.records.found_messages import FoundMessage, messages, schema_columns
from headrace_console.records.reading_plan import Ranges, ReadingPlan, plan_reading
from headrace_console.records.record_search import RecordSearch, TextsOf
from headrace_console.records.schema_values import SchemaValues, pieces
from headrace_console.records.typed_records import typed_records
from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.fetching.typed_reading import Selection, TypedReading, TypedReadings
from storage_engine.core.errors import CorruptRecordError, HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.printable import printable
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.protocol.records.record_decoder import DecodedRecords, iter_decoded
from storage_engine.tools.document import Document, Json

STEP_MS = 500
FETCH_BYTES = 1 << 20
"""The max_bytes of one fetch: a console must not keep a broker busy."""
MOST_BATCH_BYTES = 32 << 20
"""A batch that decompresses to more is not shown."""
FIRST_WINDOW, LARGEST_WINDOW = 500, 50_000
PARTITION_TIMEOUT_MS = 4_000
ROWS_PER_S = 50
"""The most rows a second of a tail; a person reads no more."""
TAIL_ROWS, TAIL_S = 10_000, 15 * 60.0
PROGRESS_EVERY_S = 1.0
PAUSE_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBounds:
    """The limits of one search; the first one reached ends it."""

    records: int
    size_bytes: int
    duration_s: float


ONE_ANSWER = SearchBounds(records=100_000, size_bytes=64 << 20, duration_s=8.0)
STREAMED = SearchBounds(records=1_000_000, size_bytes=512 << 20, duration_s=60.0)

WHY = {
    "limit": "the search has found the requested number of messages",
    "bytes": "the search has reached its limit of bytes; continue it, or narrow it",
    "time": "the search has reached its limit of time; continue it, or narrow it",
    "unanswered": "some partitions could not be read; the errors are listed",
    "records": "the search has reached its limit of records; continue it, or narrow it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """The topic, the start and the conditions of a search."""

    topic: str
    partitions: tuple[int, ...] = ()
    start: str = "newest"
    limit: int = 50
    isolation: str = "read_committed"
    search: RecordSearch = field(default_factory=RecordSearch)
    columns: tuple[str, ...] | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True)
class SearchEvent:
    """An event of a search; `kind`: rows, columns, progress, trouble, wait or end."""

    kind: str
    document: Document


class MessageSearch:
    """One search, which has a client of the library for itself."""

    def __init__(
        self,
        cluster: Cluster,
        request: SearchRequest,
        limits: SearchBounds,
        *,
        tail: bool = False,
        is_left: Callable[[], bool] = lambda: False,
        schemas: SchemaValues | None = None,
    ) -> None:
        """`is_left`: whether the page does not wait for the search any more. `schemas`: reads keys
        and values through a registry."""
        self._schemas = schemas
        self._is_left = is_left
        self._cluster = cluster
        self._request = request
        self._limits = limits
        self._tail = tail
        self._deadline_s = time.monotonic() + limits.duration_s
        self._records = self._bytes = self._found = self._skipped = 0
        self._has_progress = False
        self._has_unread = False
        self._told_s = 0.0
        self._seen: set[int] = set()
        self._unanswered: list[Document] = []
        self._troubles: list[SearchEvent] = []
        self._reading: TypedReading | None = None
        self._columns: list[Document] | None = None

    def events(self) -> Generator[SearchEvent]:
        """Yield the events; errors of a request for the topic are raised before the first one."""
        request = self._request
        plan = plan_reading(
            self._cluster, request.topic, request.partitions, request.start, request.isolation
        )
        self._unanswered = plan.unanswered
        self._choose_columns()
        if self._columns is not None:
            yield SearchEvent("columns", {"columns": self._columns})
        for missing in plan.unanswered:
            yield _trouble(missing["why"])
        ends = {tp: end for tp, (_, end) in plan.left.items()}
        yield from self._searched(plan)
        stopped = None if plan.is_done and self._found < request.limit else self._stopped()
        if stopped is None and not plan.is_done:
            # Partitions that failed are left.
            stopped = "unanswered"
        if self._tail:
            yield from self._tailed(ends)
            return
        place = plan.continuation()
        why = None if stopped is None else WHY[stopped]
        yield self._end(stopped, why, None if stopped is None else place)

    def _end(self, stopped: str | None, why: str | None, place: str | None) -> SearchEvent:
        return SearchEvent(
            "end",
            {
                "stopped": stopped,
                "why": why,
                "next": None if place is None else {"from": place},
                "scanned": self.scanned,
                "unanswered": self._unanswered,
            },
        )

    @property
    def scanned(self) -> Document:
        """The records, bytes and partitions that the search has read."""
        return {"records": self._records, "bytes": self._bytes, "partitions": len(self._seen)}

    def _choose_columns(self) -> None:
        request = self._request
        readings = TypedReadings(self._cluster)
        known = readings.of(request.topic)
        if request.columns is None and request.where is None:
            self._columns = None if known is None else schema_columns(known.known.schema)
            return
        columns = request.columns
        if known is not None and columns is None:
            columns = tuple(column.name for column in known.known.schema.latest.visible)
        if known is not None and columns is not None:
            self._columns = schema_columns(known.known.schema, columns)
            columns = (*columns, "_offset", "_timestamp", "_headers")
        readings.select(Selection.of(columns, request.where))
        self._reading = readings.of(request.topic)

    def _stopped(self) -> str | None:
        if self._found >= self._request.limit:
            return "limit"
        if self._records >= self._limits.records:
            return "records"
        # A search without progress may read more: the first value alone may be as large.
        if self._bytes >= self._limits.size_bytes * (1 if self._has_progress else 4):
            return "bytes"
        return "time" if self._is_over() else None

    def _is_over(self) -> bool:
        return self._is_left() or time.monotonic() >= self._deadline_s

    # --- a search

    def _searched(self, plan: ReadingPlan) -> Iterator[SearchEvent]:
        request = self._request
        is_plain = request.search.is_everything and request.where is None
        window = request.limit if plan.backwards and is_plain else FIRST_WINDOW
        while not plan.is_done and self._stopped() is None:
            windows = plan.next_windows(window)
            before = {tp: plan.left[tp] for tp in windows}
            if plan.backwards:
                yield from self._window_backwards(plan, windows)
            else:
                yield from self._window(plan, windows)
            if any(plan.left[tp] != before[tp] for tp in windows):
                self._has_progress = True
                window = self._next_window(window, len(windows))
            elif plan.backwards and window > 1:
                # Its values are large: nothing of the window could be read to its end.
                window = max(1, window // 10)
            else:
                return

    def _next_window(self, window: int, partitions: int) -> int:
        """Return a larger window, as long as half of the bytes that are left suffice for it."""
        record_bytes = self._bytes / max(1, self._records)
        room = max(0, self._limits.size_bytes - self._bytes) / 2 / max(1, partitions)
        return max(1, min(LARGEST_WINDOW, window * 4, int(room / max(1.0, record_bytes))))

    def _window(self, plan: ReadingPlan, windows: Ranges) -> Iterator[SearchEvent]:
        """Search forwards: show matches as they come, and stop at the limit."""
        self._told_s = time.monotonic()
        for fetched in self._fetched(windows):
            left = self._request.limit - self._found
            rows, next_offset = self._match(fetched, windows[fetched.tp][1], left)
            plan.read(fetched.tp, fetched.start_offset, next_offset)
            yield from self._shown(rows)
            yield from self._take_troubles()
            if self._stopped() is not None:
                return
            if self._is_due():
                yield self._progress({tp: start for tp, (start, _) in plan.left.items()})
        yield from self._take_troubles()

    def _window_backwards(self, plan: ReadingPlan, windows: Ranges) -> Iterator[SearchEvent]:
        """Search backwards: read the whole window, then show its newest matches. Nothing is shown
        of a partition that can't be read to the window's end: the next search begins there."""
        found: list[FoundMessage] = []
        reached = {tp: start for tp, (start, _) in windows.items()}
        bytes_before = self._bytes
        self._told_s = time.monotonic()
        for fetched in self._fetched(windows):
            rows, next_offset = self._match(fetched, windows[fetched.tp][1], None)
            found += rows
            reached[fetched.tp] = next_offset
            yield from self._take_troubles()
            if self._is_over() or self._bytes - bytes_before >= self._limits.size_bytes / 2:
                break
            if self._is_due():
                yield self._progress(reached)
        whole = {tp.partition: tp for tp, (_, end) in windows.items() if reached[tp] >= end}
        of_partitions: dict[int, list[FoundMessage]] = {number: [] for number in whole}
        for row in reversed(found):
            if row.partition in whole:
                of_partitions[row.partition].append(row)
        # By time, and each partition by its offsets: rows that are cut have smaller ones.
        kept = list(
            heapq.merge(*of_partitions.values(), key=lambda row: row.timestamp_ms, reverse=True)
        )
        left = self._request.limit - self._found
        shown, cut = kept[:left], kept[left:]
        lowest = {tp: windows[tp][0] for tp in whole.values()}
        for row in cut:
            # The next search shows them: it begins behind the newest that was not shown.
            tp = whole[row.partition]
            lowest[tp] = max(lowest[tp], row.offset + 1)
        for tp, start in lowest.items():
            plan.read(tp, start, windows[tp][1])
        yield from self._shown(shown)
        yield from self._take_troubles()

    def _fetched(self, windows: Ranges) -> Iterator[FetchedBatches]:
        """Fetch the windows' batches; partitions that fail are reported and left out."""
        with self._reader(windows, PARTITION_TIMEOUT_MS) as reader:
            while not reader.done and not self._is_over():
                yield from reader.poll(STEP_MS)

    def _reader(
        self, ranges: Mapping[TopicPartition, tuple[int, int | None]], timeout_ms: int
    ) -> contextlib.closing[BatchFetcher]:
        reading = self._reading
        return contextlib.closing(
            BatchFetcher(
                self._cluster,
                dict(ranges),
                max_bytes=FETCH_BYTES,
                max_wait_ms=STEP_MS,
                isolation=self._request.isolation,
                timeout_ms=timeout_ms,
                most_in_flight=0,
                on_failed=self._note_failed,
                typed_wants=None if reading is None else {self._request.topic: reading.want},
            )
        )

    def _note_failed(self, tp: TopicPartition, offset: int, error: HeadraceError) -> None:
        leader = self._cluster.known_leader(tp)
        broker = None if leader is None else leader.broker_id
        why = f"{tp} can't be read from offset {offset}: {error}"
        self._unanswered.append({"broker": broker, "what": str(tp), "why": why})
        self._troubles.append(_trouble(why))

    def _take_troubles(self) -> Iterator[SearchEvent]:
        troubles, self._troubles = self._troubles[:20], []
        yield from troubles

    def _match(
        self, fetched: FetchedBatches, end_offset: int | None, most: int | None
    ) -> tuple[list[FoundMessage], int]:
        """Return the matches, at most `most`, and the offset up to which records were searched."""
        self._bytes += len(fetched.records)
        self._seen.add(fetched.tp.partition)
        rows: list[FoundMessage] = []
        names = None if self._columns is None else [str(each["name"]) for each in self._columns]
        search = self._request.search
        takes_time = search.path is not None or (self._reads is not None and search.reads_texts)
        show = partial(messages, columns=names, schemas=self._reads, is_over=self._is_over)
        for records in self._pieces(fetched, end_offset):
            self._records += len(records)
            mask = search.mask(records, self._is_over, self._texts_of)
            if takes_time and self._is_over():
                # They may not all have been compared: the next search begins with them.
                return rows, records.offsets[0].as_py()
            places = np.flatnonzero(mask).tolist()
            if most is not None and len(rows) + len(places) >= most:
                places = places[: most - len(rows)]
                rows += show(fetched.tp, records, places)
                return rows, rows[-1].offset + 1 if rows else fetched.start_offset
            rows += show(fetched.tp, records, places)
        end = fetched.next_offset
        return rows, end if end_offset is None else min(end, end_offset)

    @property
    def _reads(self) -> SchemaValues | None:
        """The reader of keys and values; columns have none that are to be read."""
        return self._schemas if self._reading is None else None

    @property
    def _texts_of(self) -> TextsOf | None:
        schemas = self._reads
        if schemas is None:
            return None
        return lambda column: self._read_texts(schemas, column)

    def _read_texts(self, schemas: SchemaValues, column: pa.Array) -> pa.Array:
        texts, why = schemas.texts(column, self._is_over)
        if why is not None and not self._is_over() and not self._has_unread:
            self._has_unread = True
            self._troubles.append(
                _trouble(
                    "some keys or values can't be read by their schemas, and were searched as "
                    f"bytes alone; the first one: {printable(why)}"
                )
            )
        return texts

    def _pieces(self, fetched: FetchedBatches, end_offset: int | None) -> Iterator[DecodedRecords]:
        """Decode, and cut what is to be read through schemas."""
        cuts = self._reads is not None and self._request.search.reads_texts
        for records in self._decoded(fetched, end_offset):
            yield from pieces(records) if cuts else (records,)

    def _decoded(self, fetched: FetchedBatches, end_offset: int | None) -> Iterator[DecodedRecords]:
        if self._reading is not None:
            yield from typed_records(self._reading, fetched, end_offset)
            return
        for piece in fetched.committed():
            yield from self._of_piece(fetched, piece, end_offset)

    def _of_piece(
        self, fetched: FetchedBatches, piece: memoryview, end_offset: int | None
    ) -> Iterator[DecodedRecords]:
        """Decode batch by batch, so that a damaged batch hides no other."""
        for position, header in iter_headers(piece):
            batch = piece[position : position + header.size_in_bytes]
            try:
                yield from iter_decoded(
                    batch,
                    start_offset=fetched.start_offset,
                    end_offset=end_offset,
                    include_headers=True,
                    max_decompressed_bytes=MOST_BATCH_BYTES,
                )
            except CorruptRecordError as error:
                self._troubles.append(
                    _trouble(
                        f"the batch of {fetched.tp} with offsets {header.base_offset} to "
                        f"{header.last_offset} can't be shown: {error}"
                    )
                )

    def _shown(self, rows: list[FoundMessage]) -> Iterator[SearchEvent]:
        if rows:
            self._found += len(rows)
            yield SearchEvent("rows", {"rows": [row.document for row in rows]})

    def _is_due(self) -> bool:
        """Whether a progress event is due; if so, the time of the next one begins."""
        is_due = time.monotonic() - self._told_s >= PROGRESS_EVERY_S
        if is_due:
            self._told_s = time.monotonic()
        return is_due

    def _progress(self, at: dict[TopicPartition, int]) -> SearchEvent:
        places = {str(tp.partition): offset for tp, offset in sorted(at.items())[:500]}
        return SearchEvent(
            "progress", {"scanned": self.scanned, "at": places, "skipped": self._skipped}
        )

    # --- the end, followed

    def _tailed(self, ends: dict[TopicPartition, int]) -> Iterator[SearchEvent]:
        """Yield new records as they come; more than a person can read are only counted."""
        until_s = time.monotonic() + TAIL_S
        self._deadline_s = until_s
        shown = 0
        second, in_second = int(time.monotonic()), 0
        self._told_s = time.monotonic()
        with self._reader({tp: (end, None) for tp, end in ends.items()}, 60_000) as reader:
            while time.monotonic() < until_s and shown < TAIL_ROWS:
                for fetched in reader.poll(STEP_MS):
                    rows, _ = self._match(fetched, None, None)
                    if int(time.monotonic()) != second:
                        second, in_second = int(time.monotonic()), 0
                    room = min(ROWS_PER_S - in_second, TAIL_ROWS - shown)
                    self._skipped += max(0, len(rows) - room)
                    # The newest: they show what happens now.
                    rows = rows[len(rows) - room :] if len(rows) > room else rows
                    in_second += len(rows)
                    shown += len(rows)
                    yield from self._shown(rows)
                yield from self._take_troubles()
                if self._is_due():
                    yield self._progress({tp: reader.position(tp) for tp in ends})
                else:
                    yield SearchEvent("wait", {})
        stopped = "limit" if shown >= TAIL_ROWS else "time"
        why = "new messages are shown for 15 minutes, 10,000 at most; start again to continue"
        yield self._end(stopped, why, None)


def _trouble(message: Json) -> SearchEvent:
    return SearchEvent("trouble", {"message": message})


def collected(search: MessageSearch) -> Document:
    """Run a search to its end, and return it as one document."""
    rows: list[Json] = []
    troubles: list[Json] = []
    document: Document = {"rows": rows, "columns": None, "troubles": troubles}
    for event in search.events():
        if event.kind == "rows":
            found = event.document["rows"]
            assert isinstance(found, list)
            rows += found
        elif event.kind == "trouble":
            troubles.append(event.document["message"])
        elif event.kind in ("columns", "end"):
            document |= event.document
    return document
