"""Spark's queries, as they post themselves; in bounded memory, lost with the console.

The checkpoint keeps a query's id over restarts; each start is a run. Source: R-CON5.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from headrace_console.queries.progress_post import KeptProgress, ProgressEvent
from storage_engine.tools.document import Json

MOST_QUERIES = 200
"""The number of queries kept; the one that was silent longest is forgotten first."""
MOST_PROGRESSES = 720
"""The number of micro-batches kept of a query: two hours, at ten seconds each."""
MOST_COMMITS = 20
MOST_RUNS = 20
SILENT_TRIGGERS = 3
LEAST_SILENT_MS = 60_000

POSTS_PER_S = 100


@dataclass(slots=True, kw_only=True)
class SparkQuery:
    """A query and its posted progress."""

    id: str
    name: str | None = None
    run_id: str = ""
    ended: bool = False
    exception: str | None = None
    first_ms: int = 0
    last_ms: int = 0
    """The time of the last post, by the console's clock."""
    lag: int | None = None
    trigger_ms: int | None = None
    sink_id: str | None = None
    sink_topics: tuple[str, ...] = ()
    dead_letter_topic: str | None = None
    source_topics: tuple[str, ...] = ()
    app: Mapping[str, str | None] = field(default_factory=dict)
    sources: tuple[Mapping[str, Json], ...] = ()
    operators: tuple[Mapping[str, Json], ...] = ()
    sink_description: str | None = None
    runs: "OrderedDict[str, list[int]]" = field(default_factory=OrderedDict)
    history: deque[KeptProgress] = field(default_factory=lambda: deque(maxlen=MOST_PROGRESSES))
    commits: deque[Mapping[str, Json]] = field(default_factory=lambda: deque(maxlen=MOST_COMMITS))

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that the query reads or writes."""
        more = () if self.dead_letter_topic is None else (self.dead_letter_topic,)
        return tuple(dict.fromkeys((*self.source_topics, *self.sink_topics, *more)))

    @property
    def last(self) -> KeptProgress | None:
        return self.history[-1] if self.history else None

    def state(self, now_ms: int) -> str:
        """Return active, silent, terminated or failed."""
        if self.ended:
            return "terminated" if self.exception is None else "failed"
        allowed_ms = max(LEAST_SILENT_MS, SILENT_TRIGGERS * (self.trigger_ms or 0))
        return "silent" if now_ms - self.last_ms > allowed_ms else "active"

    def behind_ms(self) -> int | None:
        """Return the time that the lag takes at the query's present rate; None: not known."""
        last = self.last
        if self.lag is None or last is None:
            return None
        if self.lag == 0:
            return 0
        rates = [each.processed_rows_per_s for each in list(self.history)[-3:]]
        rate = max((each for each in rates if each is not None), default=None)
        if rate is None:
            return None
        return int(self.lag * 1000 / rate) if rate > 0 else 2**53 - 1


class QueryStore:
    """All queries. May be used from any thread."""

    def __init__(self, *, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._queries: OrderedDict[str, SparkQuery] = OrderedDict()
        self._posts: deque[float] = deque(maxlen=POSTS_PER_S)

    def now_ms(self) -> int:
        return int(self._now_s() * 1000)

    def has_room(self) -> bool:
        """Count a post and return True, unless this second has had POSTS_PER_S already."""
        now_s = self._now_s()
        with self._lock:
            if len(self._posts) == POSTS_PER_S and 0 <= now_s - self._posts[0] < 1.0:
                return False
            self._posts.append(now_s)
            return True

    def add(self, events: list[ProgressEvent]) -> None:
        """Add the events of a checked post."""
        with self._lock:
            for event in events:
                self._add(event)
            while len(self._queries) > MOST_QUERIES:
                self._queries.popitem(last=False)

    def all(self) -> list[SparkQuery]:
        """Return copies, which do not change while a page is made of them."""
        with self._lock:
            return [_copy(query) for query in self._queries.values()]

    def get(self, query_id: str) -> SparkQuery | None:
        with self._lock:
            query = self._queries.get(query_id)
            return None if query is None else _copy(query)

    def _add(self, event: ProgressEvent) -> None:
        now_ms = self.now_ms()
        query = self._queries.setdefault(
            event.query_id, SparkQuery(id=event.query_id, first_ms=now_ms)
        )
        self._queries.move_to_end(event.query_id)
        newest = next(reversed(query.runs), None)
        if event.run_id in query.runs and event.run_id != newest:
            # A late post of a run that another has replaced.
            query.runs[event.run_id][1] = now_ms
            return
        query.last_ms = now_ms
        query.run_id = event.run_id
        query.runs.setdefault(event.run_id, [now_ms, now_ms])[1] = now_ms
        while len(query.runs) > MOST_RUNS:
            query.runs.popitem(last=False)
        query.name = event.name or query.name
        query.ended = event.kind == "terminated"
        query.exception = event.exception
        query.trigger_ms = event.trigger_ms if event.trigger_ms is not None else query.trigger_ms
        query.lag = event.lag if event.lag is not None else query.lag
        query.source_topics = event.topics or query.source_topics
        if event.sink_id is not None or event.sink_topics:
            query.sink_id = event.sink_id
            query.sink_topics = event.sink_topics
            query.dead_letter_topic = event.dead_letter_topic
        query.app = event.app or query.app
        for commit in event.commits:
            query.commits.appendleft(commit)
        progress = event.progress
        if progress is not None:
            query.sources, query.operators = progress.sources, progress.operators
            query.sink_description = progress.sink_description
            query.history.append(progress.kept)


def _copy(query: SparkQuery) -> SparkQuery:
    return replace(
        query,
        runs=OrderedDict((run, list(times)) for run, times in query.runs.items()),
        history=deque(query.history, maxlen=MOST_PROGRESSES),
        commits=deque(query.commits, maxlen=MOST_COMMITS),
    )
