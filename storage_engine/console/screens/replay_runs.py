"""Dead letters: what waits, and sending it back to where it came from, in a thread of its own.

A replay may take minutes; the page asks how far it is. Runs have ids that nobody guesses, and
belong to the session that began them. Source: R-CON9.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.console.cluster.snapshot import NO_ENDS, Snapshot
from storage_engine.console.cluster.upstream import Upstream
from storage_engine.console.given import Body
from storage_engine.console.problem import ConsoleError
from storage_engine.console.records.shown_values import shown_text
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.letter_replay.replay import LetterReplay
from storage_engine.letter_replay.selection import LetterSelection, Survey
from storage_engine.protocol.dead_letters import read_letters
from storage_engine.protocol.records.records import HEADERS_TYPE, decode_batches

MOST_RUNS = 50
PREVIEW_S = 300
MOST_KINDS = 100
MOST_LOOKED_AT = 20
"""Topics whose last records are looked at for one list."""
REPLAY_DEADLINE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPreview:
    """A survey that was shown to somebody."""

    topic: str
    selection: LetterSelection
    limit: int | None
    survey: Survey
    until_s: float

    @property
    def document(self) -> dict[str, Any]:
        kinds = self.survey.kinds.most_common(MOST_KINDS)
        return {
            "waiting": self.survey.waiting,
            "selected": self.survey.selected,
            "without_origin": self.survey.without_origin,
            "kinds": [
                {"topic": topic, "reason": shown_text(reason, 300), "count": count}
                for (topic, reason), count in kinds
            ],
        }


def preview(cluster: Cluster, topic: str, body: Body) -> LetterPreview:
    """What a replay would send; nothing is written."""
    selection = LetterSelection(
        topics=frozenset(body.texts("topics")),
        since_ms=body.integer_or_none("since_ms"),
        until_ms=body.integer_or_none("until_ms"),
        reason=body.text_or_none("reason"),
    )
    limit = body.integer_or_none("limit", least=1)
    survey = LetterReplay(cluster, topic, selection, limit=limit).survey()
    return LetterPreview(
        topic=topic,
        selection=selection,
        limit=limit,
        survey=survey,
        until_s=time.monotonic() + PREVIEW_S,
    )


@dataclass(slots=True, eq=False)
class ReplayRun:
    """One run; `sent` grows."""

    selected: int
    sent: int = 0
    state: str = "running"
    message: str | None = None

    @property
    def document(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "sent": self.sent,
            "selected": self.selected,
            "message": self.message,
        }


class _StoppedError(HeadraceError):
    """The console ends."""


class ReplayRuns:
    """All runs of this console."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: OrderedDict[int, threading.Thread] = OrderedDict()
        self._closed = False

    def begin(self, upstream: Upstream, shown: LetterPreview) -> ReplayRun:
        """Start what was shown. ConsoleError when that is too long ago, or too many run."""
        if time.monotonic() > shown.until_s:
            raise ConsoleError("conflict", "the preview is too old; look at a new one")
        run = ReplayRun(shown.survey.selected)
        thread = threading.Thread(
            target=self._run, args=(upstream, shown, run), name="console-replay", daemon=True
        )
        with self._lock:
            alive = [each for each in self._threads.values() if each.is_alive()]
            if len(alive) >= 4:
                raise ConsoleError(
                    "too_many", "four replays run already; wait for one", retry_after_s=10
                )
            self._threads[id(thread)] = thread
            while len(self._threads) > MOST_RUNS:
                self._threads.popitem(last=False)
        thread.start()
        return run

    def _run(self, upstream: Upstream, shown: LetterPreview, run: ReplayRun) -> None:
        def progress(sent: int) -> None:
            run.sent = sent
            if self._closed:
                raise _StoppedError("the console ended; what was sent is sent")

        try:
            with upstream.client(deadline_ms=REPLAY_DEADLINE_MS) as cluster:
                replay = LetterReplay(cluster, shown.topic, shown.selection, limit=shown.limit)
                # What was shown, and no letter that came later; less where others were quicker.
                run.sent = replay.run(shown.survey, progress)
            run.state = "done"
        except HeadraceError as error:
            run.message, run.state = str(error), "failed"

    def close(self) -> None:
        """Runs end after the chunk that they are at, which is committed or not at all."""
        self._closed = True
        for thread in list(self._threads.values()):
            thread.join(timeout=5)


def letter_topics(
    cluster: Cluster, snapshot: Snapshot, told: Iterable[str]
) -> list[dict[str, Any]]:
    """Topics of dead letters: those that queries tell of, and those whose name says so and whose
    last records have the headers."""
    topics = snapshot.metadata.topics
    found = {name: True for name in told if name in topics}
    named = sorted(name for name in topics if "dead" in name.lower() and name not in found)
    for name in named[:MOST_LOOKED_AT]:
        found[name] = _has_letters(cluster, snapshot, name)
    rows = []
    for name, is_one in sorted(found.items()):
        if is_one:
            ends = [
                snapshot.ends.get(TopicPartition(name, number), NO_ENDS)
                for number in topics[name].partitions
            ]
            counts = [
                each.high_watermark - each.start
                for each in ends
                if each.high_watermark is not None and each.start is not None
            ]
            rows.append(
                {"topic": name, "records": sum(counts) if counts else None, "origins": None}
            )
    return rows


def _has_letters(cluster: Cluster, snapshot: Snapshot, name: str) -> bool:
    """Whether the last record of a partition is a letter."""
    for number in list(snapshot.metadata.topics[name].partitions)[:8]:
        ends = snapshot.ends.get(TopicPartition(name, number), NO_ENDS)
        if ends.high_watermark and ends.high_watermark > (ends.start or 0):
            tp = TopicPartition(name, number)
            try:
                return _last_is_letter(cluster, tp, ends.high_watermark)
            except HeadraceError:
                continue
    return False


def _last_is_letter(cluster: Cluster, tp: TopicPartition, end: int) -> bool:
    first = cluster.list_offsets({tp: EARLIEST})[tp]
    end = min(end, cluster.list_offsets({tp: LATEST})[tp])
    reader = BatchFetcher(
        cluster, {tp: (max(first, end - 3), end)}, max_bytes=1 << 20, timeout_ms=1_500
    )
    try:
        while not reader.done:
            for fetched in reader.poll(500):
                records = decode_batches(bytes(fetched.records), include_headers=True)
                letters = read_letters(records.headers.cast(HEADERS_TYPE))
                if np.any(letters.complete.to_numpy(zero_copy_only=False)):
                    return True
    finally:
        reader.close()
    return False
