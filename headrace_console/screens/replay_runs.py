"""Dead letters: their survey, and their replay to where they came from, in a thread of its own.

A replay may take minutes; the page polls its progress. It ends with the session that began it,
whose rights it uses. Every user who sees its topic sees the run; only its user may stop it, or
anybody on an open cluster. Source: R-CON9.
"""

import contextlib
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

import numpy as np

from headrace_console.cluster.snapshot import NO_ENDS, Snapshot
from headrace_console.cluster.upstream import Upstream
from headrace_console.given import Body
from headrace_console.problem import ConsoleError
from headrace_console.records.shown_values import shown_text
from headrace_console.screens.topics import topic_row
from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.letter_replay.replay import LetterReplay
from storage_engine.letter_replay.selection import LetterSelection, Survey
from storage_engine.protocol.dead_letters import read_letters
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.tools.document import Document

MOST_RUNS = 50
"""The number of runs that are remembered; running ones are never forgotten."""
MOST_RUNNING = 4
END_TIMEOUT_S = 5.0
PREVIEW_S = 300
MOST_KINDS = 100
MOST_LOOKED_AT = 20
"""The most topics whose last records are read for one list."""
REPLAY_DEADLINE_MS = 60_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPreview:
    """A survey as it was shown to a user, who may confirm its replay."""

    topic: str
    selection: LetterSelection
    limit: int | None
    survey: Survey
    until_s: float

    @property
    def document(self) -> Document:
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
    """Return the survey of a replay; nothing is written."""
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
    """A run of a replay; `sent` grows."""

    replay_id: str
    topic: str
    user: str | None
    began_ms: int
    selected: int
    sent: int = 0
    state: str = "running"
    message: str | None = None
    stop_reason: str | None = None
    """Why the run shall end after its present chunk; None: it goes on."""

    @property
    def document(self) -> Document:
        document = asdict(self)
        del document["stop_reason"]
        return document


class _StoppedError(HeadraceError):
    """The run shall end before it is done."""


class ReplayRuns:
    """All runs of this console."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, tuple[ReplayRun, threading.Thread]] = OrderedDict()
        self._closed = False

    def begin(
        self, upstream: Upstream, shown: LetterPreview, *, is_alive: Callable[[], bool]
    ) -> ReplayRun:
        """Start the replay of a preview; it goes on as long as `is_alive`. ConsoleError if the
        preview is too old, or too many replays run."""
        if time.monotonic() > shown.until_s:
            raise ConsoleError("conflict", "the preview is too old; open a new one")
        run = ReplayRun(
            replay_id=secrets.token_urlsafe(12),
            topic=shown.topic,
            user=upstream.user,
            began_ms=int(time.time() * 1000),
            selected=shown.survey.selected,
        )
        thread = threading.Thread(
            target=self._run,
            args=(upstream, shown, run, is_alive),
            name="console-replay",
            daemon=True,
        )
        with self._lock:
            if self._closed:
                raise ConsoleError("no_answer", "the console is stopping; start it again first")
            running = [each for each, at in self._runs.values() if at.is_alive()]
            if len(running) >= MOST_RUNNING:
                raise ConsoleError(
                    "too_many",
                    f"{MOST_RUNNING} replays run already; wait for one, or stop one",
                    retry_after_s=10,
                )
            self._runs[run.replay_id] = run, thread
            for old in [each for each, (_, at) in self._runs.items() if not at.is_alive()]:
                if len(self._runs) > MOST_RUNS and old != run.replay_id:
                    del self._runs[old]
            thread.start()
        return run

    def get(self, run_id: str) -> ReplayRun | None:
        """Return a run; None if it is unknown or forgotten."""
        with self._lock:
            found = self._runs.get(run_id)
            return None if found is None else found[0]

    def of_topic(self, topic: str) -> list[ReplayRun]:
        """Return the remembered runs of a topic, the newest first."""
        with self._lock:
            return [run for run, _ in reversed(self._runs.values()) if run.topic == topic]

    def stop(self, run: ReplayRun, user: str | None) -> None:
        """Stop a run; ConsoleError not_allowed for the run of another user."""
        if run.user != user:
            raise ConsoleError(
                "not_allowed",
                f"'{run.user}' has begun this replay; only the same user may stop it",
            )
        run.stop_reason = "it was stopped in the console"

    def _run(
        self,
        upstream: Upstream,
        shown: LetterPreview,
        run: ReplayRun,
        is_alive: Callable[[], bool],
    ) -> None:
        def progress(sent: int) -> None:
            run.sent = sent
            if self._closed:
                run.stop_reason = "the console ended"
            elif not is_alive():
                run.stop_reason = "the session that began it has ended"
            if run.stop_reason is not None and sent < run.selected:
                raise _StoppedError(
                    f"{run.stop_reason}; letters that were sent stay sent, and the next replay "
                    "continues after them"
                )

        try:
            with upstream.client(deadline_ms=REPLAY_DEADLINE_MS) as cluster:
                replay = LetterReplay(cluster, shown.topic, shown.selection, limit=shown.limit)
                # The surveyed letters, and no later ones; fewer if another replay was quicker.
                run.sent = replay.run(shown.survey, progress)
            run.state = "done"
        except _StoppedError as error:
            run.message, run.state = str(error), "stopped"
        except HeadraceError as error:
            run.message, run.state = str(error), "failed"
        except Exception as error:
            log.exception("a replay of dead letters has failed")
            run.message, run.state = f"the console met an error: {error}", "failed"

    def close(self) -> None:
        """End runs after their present chunks, which are committed or not at all."""
        with self._lock:
            self._closed = True
            threads = [thread for _, thread in self._runs.values()]
        until_s = time.monotonic() + END_TIMEOUT_S
        for thread in threads:
            thread.join(timeout=max(0.0, until_s - time.monotonic()))


def letter_topics(cluster: Cluster, snapshot: Snapshot, told: Iterable[str]) -> list[Document]:
    """Return topics of dead letters: those that queries have posted, and those with "dead" in the
    name whose last records have the headers."""
    topics = snapshot.metadata.topics
    found = {name: True for name in told if name in topics}
    named = sorted(name for name in topics if "dead" in name.lower() and name not in found)
    for name in named[:MOST_LOOKED_AT]:
        found[name] = _has_letters(cluster, snapshot, name)
    rows = []
    for name, is_one in sorted(found.items()):
        if is_one:
            records = topic_row(snapshot, topics[name])["records"]
            rows.append({"topic": name, "records": records, "origins": None})
    return rows


def _has_letters(cluster: Cluster, snapshot: Snapshot, name: str) -> bool:
    """Whether the last records of the first readable partition have a dead letter."""
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
    with contextlib.closing(reader.read()) as fetches:
        for fetched in fetches:
            records = decode_batches(bytes(fetched.records), include_headers=True)
            letters = read_letters(records.headers.cast(HEADERS_TYPE))
            if np.any(letters.complete.to_numpy(zero_copy_only=False)):
                return True
    return False
