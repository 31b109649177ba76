"""Looks at the cluster every two seconds while pages ask, and keeps the last snapshot.

One thread asks all brokers in parallel, so a broker that hangs delays a look by the timeout and
hides nothing of the others. Where a look is expensive, since there are many partitions, looks come
every three seconds. Source: R-CON2, R-CON4.
"""

import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence

from headrace_console.cluster import looks
from headrace_console.cluster.broker_lines import Answers, BrokerLines, Given, Question, why_not
from headrace_console.cluster.certificates import CertificateLooks
from headrace_console.cluster.changes import Changes
from headrace_console.cluster.group_looks import GroupLooks
from headrace_console.cluster.setting_looks import SettingLooks
from headrace_console.cluster.snapshot import Ends, ShownDisk, Snapshot, addresses_of
from headrace_console.cluster.traffic import Traffic
from headrace_console.cluster.transaction_looks import TransactionLooks
from headrace_console.cluster.upstream import Upstream
from storage_engine.client.addresses import Address
from storage_engine.client.metadata import ClusterMetadata, view_of
from storage_engine.core.errors import AuthenticationError, DeadlineExceededError, HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_ms

LOOK_EVERY_S = 2.0
MOST_BETWEEN_S = 3.0
"""The longest pause between looks: a page, which asks once a second, shows a problem in 5 s."""
_DIRS_AT_LEAST_MS = 2_500
"""The most time between requests for disks: at 3 s each look asks, at 2 s every other one."""
_SHARE = 40
"""Looks take at most 1/40 of the time; each costs brokers about as much as the console."""
UNWATCHED_AFTER_S = 30.0
UNWATCHED_EVERY_S = 10.0
"""The pause while no page asks: only the timeline goes on."""
ASK_TIMEOUT_MS = 1_000
"""A broker that takes longer is shown as silent."""
IDLE_AFTER_S = 60.0
"""The time without requests after which the thread ends; the next one starts it again."""
FIRST_LOOK_S = 8.0
STALE_MS = 4_500
PAGE_WAIT_S = 1.5
"""The longest wait for data that a page can do without."""
STARTS_EVERY = 5
"""Every fifth look asks for log start offsets: they matter less."""

log = logging.getLogger(__name__)


class ClusterWatcher:
    """The watcher of one principal. All methods may be called from any thread."""

    def __init__(self, upstream: Upstream, *, for_ever: bool) -> None:
        """`for_ever`: looks go on without requests, so that the timeline has no gaps."""
        self._upstream = upstream
        self._for_ever = for_ever
        self._lock = threading.Condition()
        self._snapshot: Snapshot | None = None
        self._error: HeadraceError | None = None
        self._asked_at_s = 0.0
        self._looks = 0
        self._wanted = False
        self._running = False
        self._closed = False
        self._kind: str | None = None
        self.changes = Changes()
        self.traffic = Traffic()

    def snapshot(self, *, newer_than_ms: int = 0, wait_s: float = FIRST_LOOK_S) -> Snapshot:
        """Return a snapshot at least as new; after `wait_s` the last; raise if there is none."""
        deadline_s = time.monotonic() + wait_s
        with self._lock:
            was_unwatched = time.monotonic() - self._asked_at_s >= UNWATCHED_AFTER_S
            self._asked_at_s = time.monotonic()
            self._start()
            looks_before = self._looks
            if was_unwatched and self._snapshot is not None:
                # The snapshot may be ten seconds old.
                newer_than_ms = max(newer_than_ms, int(time.time() * 1000) - STALE_MS)
                self._wanted = True
                self._lock.notify_all()
            while not self._closed:
                found = self._snapshot
                if found is not None and found.at_ms >= newer_than_ms:
                    return found
                left_s = deadline_s - time.monotonic()
                if self._error is not None and self._looks > looks_before and found is None:
                    raise self._error
                if left_s <= 0:
                    break
                self._lock.wait(left_s)
            if self._snapshot is not None:
                return self._snapshot
            raise self._error or DeadlineExceededError(
                f"no broker of {self._upstream.bootstrap_servers} has answered yet; check that the "
                "cluster is up"
            )

    @property
    def kind(self) -> str | None:
        """headrace, or kafka for brokers without Headrace's own APIs; None: not known yet."""
        return self._kind

    def cluster_id(self) -> str | None:
        """Return the id after the first look; None on an error: a page is shown all the same."""
        try:
            return self.snapshot(wait_s=PAGE_WAIT_S).metadata.cluster_id
        except HeadraceError:
            return None

    def look_soon(self) -> None:
        """Look at once, since something was changed."""
        with self._lock:
            self._wanted = True
            self._lock.notify_all()

    def start(self) -> None:
        """Start to look at the cluster."""
        with self._lock:
            self._asked_at_s = time.monotonic()
            self._start()

    def _start(self) -> None:
        if not self._running and not self._closed:
            self._running = True
            threading.Thread(target=self._run, name="console-watcher", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()

    # --- the thread

    def _run(self) -> None:
        eye = _Eye(self._upstream)  # opens nothing
        try:
            while self._goes_on():
                began_s, cost_s = time.monotonic(), time.process_time()
                self._look(eye)
                cost_s = time.process_time() - cost_s
                self._wait(began_s, min(MOST_BETWEEN_S, max(LOOK_EVERY_S, _SHARE * cost_s)))
        finally:
            eye.close()

    def _goes_on(self) -> bool:
        with self._lock:
            idle = time.monotonic() - self._asked_at_s > IDLE_AFTER_S
            if self._closed or (idle and not self._for_ever):
                self._running = False
                return False
            return True

    def _wait(self, began_s: float, pause_s: float) -> None:
        """Sleep until `pause_s` after `began_s`; longer while no page asks, until one does."""
        with self._lock:
            while not self._closed and not self._wanted:
                is_watched = time.monotonic() - self._asked_at_s < UNWATCHED_AFTER_S
                pause = pause_s if is_watched else UNWATCHED_EVERY_S
                left_s = began_s + pause - time.monotonic()
                if left_s <= 0:
                    break
                self._lock.wait(left_s)
            self._wanted = False

    def _look(self, eye: "_Eye") -> None:
        error: HeadraceError | None = None
        seen: Snapshot | None = None
        try:
            seen = eye.look(self.traffic)
        except HeadraceError as failure:
            error = failure
        except Exception as failure:
            log.exception("a look at the cluster has failed")
            error = HeadraceError(f"a look at the cluster has failed: {failure}")
        with self._lock:
            self._looks += 1
            if isinstance(error, AuthenticationError):
                # A retry would look like an attack. The next request gets the error: log in again.
                self._closed = True
                self._snapshot = None
                seen = None
            self._kind = eye.kind or self._kind
            self._error = error
            if seen is not None:
                self.changes.compare(self._snapshot, seen)
                self._snapshot = seen
            elif self._snapshot is not None:
                self._snapshot = looks.nobody_answers(self._snapshot, str(error))
                self.changes.compare(None, self._snapshot)
            self._lock.notify_all()


class _Eye:
    """The connections and caches of the watcher's thread."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._lines = BrokerLines(upstream.security)
        self._cluster = upstream.client(deadline_ms=3_000)
        self._addresses: dict[int, Address] = {}
        self._well: list[int] = []
        self._seen_ms: dict[int, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._disks: dict[int, tuple[ShownDisk, ...]] = {}
        self._replica_sizes: dict[int, dict[TopicPartition, int]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._count = 0
        self._dirs_at_ms = 0
        self._dirs_every_ms = 0
        self._transactions = TransactionLooks(self._ask)
        self._groups = GroupLooks(self._ask)
        self._settings = SettingLooks(self._ask)
        self._certificates = CertificateLooks()
        self.kind: str | None = None

    def close(self) -> None:
        self._lines.close()
        self._cluster.close()

    def look(self, traffic: Traffic) -> Snapshot:
        metadata = self._metadata()
        at_ms = int(time.time() * 1000)
        self._addresses = addresses_of(metadata)
        led = looks.led_by(metadata)
        with_dirs = monotonic_ms() - self._dirs_at_ms >= self._dirs_every_ms
        known = sum(len(rows) for rows in led.values()) <= len(self._starts)
        with_starts = not known or self._count % STARTS_EVERY == 0
        self._count += 1
        began_ms = monotonic_ms()
        answers = self._lines.ask(
            {
                broker: looks.questions(led.get(broker, ()), starts=with_starts, dirs=with_dirs)
                for broker in metadata.brokers
            },
            self._addresses,
            timeout_ms=ASK_TIMEOUT_MS,
        )
        silent = {
            broker: why_not(broker, each)
            for broker, each in answers.items()
            if isinstance(each, HeadraceError)
        }
        _check_accepted(answers)
        self._well = [broker for broker in answers if broker not in silent]
        for broker in self._well:
            self._seen_ms[broker] = at_ms
        given = {broker: each for broker, each in answers.items() if isinstance(each, list)}
        if self.kind is None and given:
            self.kind = self._ask_kind(next(iter(given)))
        ends = self._ends(given, with_starts)
        if with_dirs:
            self._take_dirs(metadata, given, began_ms)
        traffic.add(at_ms, ends, self._sizes, new_sizes=with_dirs)
        waiting = self._transactions.look(metadata, ends, self._well, at_ms)
        groups = self._groups.look(metadata, ends, self._well, at_ms)
        facts = self._settings.look(metadata, self._well)
        return Snapshot(
            at_ms=at_ms,
            metadata=metadata,
            ends=ends,
            groups=groups,
            topic_facts=facts,
            sizes=self._sizes,
            disks=looks.with_reserves(self._disks, self._settings.reserves, metadata),
            rates=traffic.rates,
            topic_bytes_per_s=traffic.topic_bytes_per_s,
            open_transactions=waiting,
            silent=silent,
            gone=looks.gone(metadata, self._seen_ms),
            certificates=self._ask_certificates(),
            unanswered=tuple(
                (broker, "how its partitions are", why) for broker, why in silent.items()
            ),
        )

    def _ask_certificates(self) -> dict[int, int]:
        if not self._upstream.uses_tls:
            return {}
        return self._certificates.look({broker: self._addresses[broker] for broker in self._well})

    def _ask(self, questions: Mapping[int, Sequence[Question]]) -> dict[int, Given]:
        answers = self._lines.ask(questions, self._addresses, timeout_ms=ASK_TIMEOUT_MS)
        return {broker: each for broker, each in answers.items() if isinstance(each, list)}

    def _ask_kind(self, broker: int) -> str | None:
        for (answer,) in self._ask({broker: [looks.OWN_API]}).values():
            return "kafka" if isinstance(answer, HeadraceError) else "headrace"
        return None

    def _metadata(self) -> ClusterMetadata:
        """Return the metadata of a broker that answered the last look; else of any."""
        for broker in random.sample(self._well, min(2, len(self._well))):
            for (answer,) in self._ask({broker: [looks.ALL_METADATA]}).values():
                return view_of(answer)
        return self._cluster.metadata()

    def _ends(self, given: Mapping[int, Given], with_starts: bool) -> dict[TopicPartition, Ends]:
        if with_starts:
            starts = looks.offsets(given, looks.STARTS_AT)
            self._starts = starts
        high, stable = looks.offsets(given, looks.HIGH_AT), looks.offsets(given, looks.STABLE_AT)
        return {tp: Ends(self._starts.get(tp), at, stable.get(tp)) for tp, at in high.items()}

    def _take_dirs(
        self, metadata: ClusterMetadata, given: Mapping[int, Given], began_ms: int
    ) -> None:
        """Keep the answers on log dirs. Those of a silent broker stay as they were."""
        self._dirs_at_ms = began_ms
        before_s = time.thread_time()
        for broker, answers in given.items():
            found = looks.log_dirs(answers[-1])
            if found is not None:
                self._disks[broker], self._replica_sizes[broker] = found
        self._sizes = looks.partition_sizes(metadata, self._replica_sizes)
        cost_ms = (time.thread_time() - before_s) * 1000
        # The answers are expensive with many replicas.
        self._dirs_every_ms = min(_DIRS_AT_LEAST_MS, int(20 * cost_ms))


def _check_accepted(answers: Answers) -> None:
    """Raise the error of a broker that rejected the log-in."""
    for each in answers.values():
        if isinstance(each, AuthenticationError):
            raise each
