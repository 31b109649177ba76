"""The query of the soak, the brokers under it, and what goes wrong with them. After each fault
everything that died is started again, however often; nothing is repaired but that.
"""

import contextlib
import os
import random
import signal
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from integration_tests.exactly_once.committed_reader import CommittedReader, read_all
from integration_tests.exactly_once.exactly_once import delays_s, judge
from integration_tests.exactly_once.fault_runner import (
    RESTARTS,
    RUN_TIMEOUT_S,
    SETTINGS,
    STATE,
    STATE_PARTITIONS,
    STATE_TOPIC,
    proxied,
)
from integration_tests.exactly_once.query_server import QueryServer, Run
from integration_tests.exactly_once.sink_queries import PARTITIONS
from integration_tests.support.cluster_support import (
    DEADLINE_S,
    HEALED_S,
    admin,
    create_topic,
    leader_of,
    not_in_sync,
    running_cluster,
    wait_while_lacking,
)
from storage_engine.core.transactions.transaction_state import state_partition

PER_BATCH = 5_000
TOLD = 300
"""Of a failure of the query; all of it is in its log."""

MOMENTS = ("before-write", "some-rows", "all-rows", "before-commit", "answered")
IN_A_TASK = MOMENTS[:3]
PAUSE_S = (1.0, 8.0)
"""Between faults."""

DOWN_S = (0.2, 5.0)
"""How long a broker is dead, or hangs; ZooKeeper takes it for dead after two seconds."""

CUT_S = (0.2, 3.0)
REACHED_S = 30.0
"""For a micro-batch to come to a moment: else the fault comes at any time."""

GOES_ON = 0.7
"""How often a query has to get on after a fault before the next one comes; else they pile up."""

SETTLED_S = 10.0
"""After a disturbance leaders move, and clients find them."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    complaints: list[str]
    batches: int
    undisturbed: int
    median_s: float
    longest_s: float
    seen: int
    """Rows that the reader had read by the end of the faults."""
    looks: int
    """Different positions at which it had then seen all that was readable."""


class Soak:
    """Runs for as long as the block lasts. `folder` then holds the logs of all that ran: `cluster`
    of the brokers, `local.log` of Spark."""

    def __init__(
        self, folder: Path, seed: int, say: Callable[[str], None], *, broken: str | None = None
    ) -> None:
        """`broken`: one of `broken_sinks`, which the soak has to detect."""
        self._say = say
        self._broken = broken
        self._folder = folder / "query"
        self._folder.mkdir(parents=True)
        self._all = folder
        self._random = random.Random(seed)
        self._stack = ExitStack()
        name = uuid.uuid4().hex[:8]
        self.source = f"{name}-source"
        self._target = f"{name}-target"
        self.restarts = 0
        self._disturbed: list[tuple[float, float]] = []
        self._over: str | None = None
        """What the query said last, when its run is over."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._cluster = stack.enter_context(
                running_cluster(self._all / "cluster", settings=SETTINGS)
            )
            self._admin = admin(self._cluster)
            self.servers = self._cluster.bootstrap_servers
            settings = {"min.insync.replicas": "2"}
            create_topic(self._cluster, self.source, partitions=2, config=settings)
            create_topic(self._cluster, self._target, partitions=PARTITIONS, config=settings)
            self._reader = stack.enter_context(
                CommittedReader(self.servers, self._target, PARTITIONS)
            )
            self._proxies = stack.enter_context(proxied(self._cluster, self._folder))
            self._run = Run(
                query="random",
                servers=self.servers,
                sources=[self.source],
                target=self._target,
                sink_id=self._target,
                folder=str(self._folder),
                per_batch=PER_BATCH,
                min_partitions=2,
                endless=True,
                broken=self._broken,
            )
            stack.callback(lambda: self._query.kill())
            self._begin()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    # --- looking ---

    def rows_seen(self) -> int:
        return sum(len(each.rows) for each in self._reader.watched.values())

    def looks(self) -> int:
        """The positions at which the reader has looked."""
        return sum(len(each.looks) for each in self._reader.watched.values())

    def batches_seen(self) -> int:
        return len(self._all_batches())

    def _last_seen(self) -> int:
        """The newest micro-batch that the reader has seen; -1 for none."""
        return max(self._all_batches(), default=-1)

    def _all_batches(self) -> set[int]:
        return {batch for each in self._reader.watched.values() for batch in list(each.seen_at)}

    # --- faults ---

    def fault(self) -> str:
        """Waits a little, causes one fault, and starts again what died. Returns the fault's
        name."""
        time.sleep(self._random.uniform(*PAUSE_S))
        self._revive()
        name, act = self._random.choice(
            [
                ("driver kills", self._kill_the_driver),
                ("worker kills", self._kill_a_worker),
                ("broker kills", self._kill_a_broker),
                ("hanging brokers", self._stop_a_broker),
                ("network cuts", self._cut_the_network),
                ("failed tasks", self._fail_a_task),
                ("zombies", self._leave_a_zombie),
            ]
        )
        act()
        self._revive()
        if self._random.random() < GOES_ON:
            self.wait_for_progress()
        return name

    def wait_for_progress(self) -> None:
        """Until a micro-batch is readable that is not yet; who dies meanwhile is started again."""
        seen = self._last_seen()

        def lacking() -> list[str]:
            self._reader.check()
            self._revive()
            return [] if self._last_seen() > seen else [f"a micro-batch after {seen}"]

        self._wait(lacking)

    def _wait(self, lacking: Callable[[], list[str]]) -> None:
        wait_while_lacking(lacking, timeout_s=HEALED_S, tell=self._say)

    def _at_a_moment(self, moments: tuple[str, ...]) -> int | None:
        """A process of the query stands still there, in one of the next micro-batches; None when it
        does not come to it."""
        batch = self._last_batch() + self._random.randrange(1, 3)
        request = self._folder / f"stop-{self._random.choice(moments)}-{batch}"
        request.touch()
        reached = self._folder / "reached"
        deadline = time.monotonic() + REACHED_S
        while not reached.exists():
            late_s, running = time.monotonic() - deadline, self._is_running()
            # What was taken is told in a moment, unless who took it died.
            if (late_s > 0 or not running) and (
                _taken_back(request) or late_s > REACHED_S or not running
            ):
                return None
            time.sleep(0.02)
        return int(reached.read_text().split()[0])

    def _last_batch(self) -> int:
        offsets = self._folder / "checkpoint" / "offsets"
        names = [each.name for each in offsets.glob("*")] if offsets.exists() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _goes_on(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._folder / "reached").unlink()

    def _perhaps_at_a_moment(self, moments: tuple[str, ...] = MOMENTS) -> int | None:
        return self._at_a_moment(moments) if self._random.random() < 0.7 else None

    def _kill_the_driver(self) -> None:
        self._perhaps_at_a_moment()
        self._query.kill()
        self._goes_on()

    def _kill_a_worker(self) -> None:
        pid = self._perhaps_at_a_moment()
        if pid is None:
            pid = self._random.choice(self._query.python_workers() or [0])
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._goes_on()

    def _fail_a_task(self) -> None:
        if self._at_a_moment(IN_A_TASK) is not None:
            (self._folder / "then").touch()
        self._goes_on()

    def _kill_a_broker(self) -> None:
        self._perhaps_at_a_moment()
        with self._disturbance():
            victim = self._victim()
            self._cluster.kill_broker(victim)
            self._goes_on()
            time.sleep(self._random.uniform(*DOWN_S))
            self._cluster.start_broker(victim)
            self._wait_until_in_sync()

    def _stop_a_broker(self) -> None:
        self._perhaps_at_a_moment()
        with self._disturbance():
            victim = self._victim()
            pid = next(each.pid for each in self._cluster.state.brokers if each.id == victim)
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            try:
                self._goes_on()
                time.sleep(self._random.uniform(*DOWN_S))
            finally:
                os.kill(pid, signal.SIGCONT)
            self._wait_until_in_sync()

    def _victim(self) -> int:
        """Who leads a part of the output, coordinates, controls, or anybody."""
        choose: Callable[[], int] = self._random.choice(
            [
                lambda: leader_of(self._admin, self._target, self._random.randrange(PARTITIONS)),
                lambda: leader_of(
                    self._admin, STATE, state_partition(self._run.sink_id, STATE_PARTITIONS)
                ),
                lambda: int(self._admin.list_topics(timeout=30).controller_id),
                lambda: self._random.choice((1, 2, 3)),
            ]
        )
        victim = choose()
        return victim if victim > 0 else 1

    def _cut_the_network(self) -> None:
        self._perhaps_at_a_moment()
        with self._disturbance():
            some = self._random.sample(sorted(self._proxies), self._random.randrange(1, 4))
            for broker in some:
                if self._random.random() < 0.5:
                    self._proxies[broker].cut()
                else:
                    self._proxies[broker].hold(to_target=self._random.random() < 0.5)
            self._goes_on()
            time.sleep(self._random.uniform(*CUT_S))
            for broker in some:
                # Who was cut off for long has new connections; what was held back may still come.
                self._proxies[broker].heal()

    def _leave_a_zombie(self) -> None:
        """It goes on some time later, while its micro-batch, or another one, is being written."""
        for name in ("zombie-wrote", "zombie-goes-on", "zombie-ended"):
            (self._folder / name).unlink(missing_ok=True)
        request = self._folder / f"zombie-{self._last_batch() + 1}"
        request.touch()
        wrote, ended = self._folder / "zombie-wrote", self._folder / "zombie-ended"
        deadline = time.monotonic() + REACHED_S
        while not wrote.exists() and time.monotonic() < deadline and self._is_running():
            time.sleep(0.02)
        request.unlink(missing_ok=True)
        if not wrote.exists():
            (self._folder / "zombie-goes-on").touch()
            return
        time.sleep(self._random.uniform(0, 4))
        (self._folder / "zombie-goes-on").touch()
        deadline = time.monotonic() + DEADLINE_S
        while not ended.exists() and time.monotonic() < deadline and self._is_running():
            time.sleep(0.02)

    @contextlib.contextmanager
    def _disturbance(self) -> Iterator[None]:
        began = time.time()
        try:
            yield
        finally:
            self._disturbed.append((began, time.time() + SETTLED_S))

    def _wait_until_in_sync(self) -> None:
        topics = {self.source: (2, 3), self._target: (PARTITIONS, 3)} | STATE_TOPIC
        self._wait(lambda: [*self._not_running(), *not_in_sync(self._admin, topics)])

    def _not_running(self) -> list[str]:
        return [
            f"broker {each.id}, which ended by itself"
            for each in self._cluster.state.brokers
            if each.pid is None
        ]

    # --- the query ---

    def _begin(self) -> None:
        self._query = QueryServer(self._all)
        assert self._query.answer(RUN_TIMEOUT_S) == "ready", self._query.last_words()
        self._query.start(self._run)

    def _is_running(self) -> bool:
        """Whether it runs and has not reported its end."""
        if self._query.alive and self._over is None:
            self._over = self._query.answer(0.001)
            if self._over is not None:
                self._say(f"the query {self._over[:TOLD]}")
        return self._query.alive and self._over is None

    def _revive(self) -> None:
        if self._is_running():
            return
        self.restarts += 1
        self._over = None
        self._run = replace(self._run, min_partitions=self._random.randrange(2, 6))
        if self._query.alive:
            self._query.start(self._run)
        else:
            self._begin()

    # --- the end ---

    def finish(self, ids: int) -> Findings:
        """Runs the query to the end of its source, and judges; `ids`: 0 up to it, exclusive."""
        seen, looks = self.rows_seen(), self.looks()
        self._query.kill()
        self._goes_on()
        for asked in ("stop-*", "zombie-*", "then"):
            for left in self._folder.glob(asked):
                left.unlink()
        self._wait_until_in_sync()
        self._run = replace(self._run, endless=False)
        for _ in range(RESTARTS):
            answer = self._to_an_end()
            if answer == "ended":
                break
            self._say(f"the query {answer[:TOLD]}")
        assert answer == "ended", f"the query does not end: {answer}"
        self._reader.wait_until_stable(timeout_s=HEALED_S)
        found = read_all(self.servers, self._target, PARTITIONS)
        delays = self._undisturbed_delays()
        return Findings(
            complaints=judge(found, self._reader.watched, range(ids)),
            batches=len({row.batch for rows in found.values() for row in rows}),
            undisturbed=len(delays),
            median_s=statistics.median(delays or [0.0]),
            longest_s=max(delays, default=0.0),
            seen=seen,
            looks=looks,
        )

    def _to_an_end(self) -> str:
        """What the query says when its run is over, however long that takes while it gets on."""
        if self._query.alive:
            self._query.start(self._run)
        else:
            self._begin()
        answers: list[str] = []
        while not answers:
            seen = self._last_seen()

            def lacking(seen: int = seen) -> list[str]:
                self._reader.check()
                answer = self._query.answer(0.01)
                if answer is not None or not self._query.alive:
                    answers.append(answer or "died")
                news = answers or self._last_seen() > seen
                return [] if news else [f"a micro-batch after {seen}, or the query's end"]

            self._wait(lacking)
        return answers[0]

    def _undisturbed_delays(self) -> list[float]:
        lines = (self._folder / "commits").read_text().splitlines()
        # The first time counts; a replay's commit comes later.
        pairs = [line.split() for line in reversed(lines)]
        committed_at = {int(batch): float(moment) for batch, moment in pairs}
        return [
            delay
            for batch, delay in delays_s(self._reader.watched, committed_at).items()
            if not any(
                began - SETTLED_S <= committed_at[batch] <= over for began, over in self._disturbed
            )
        ]


def _taken_back(request: Path) -> bool:
    """Whether no process had taken it."""
    try:
        request.unlink()
    except FileNotFoundError:
        return False
    return True
