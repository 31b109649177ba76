"""One instance of the lake: finds tables, shares their partitions with others, reads, and commits.

    discovery ─► subscription ─► group ─► partitions ─► table tasks ─► jobs (threads) ─► tables
                                                            ▲
                                         reader ── batches ─┘

One thread does all that is not the work of a table. What limits it is memory: while rows take all
that they may, nothing is read.
"""

import logging
from collections.abc import Mapping
from functools import partial

from headrace_lake.lake_settings import LakeSettings, TableSettings
from headrace_lake.reading.lake_reader import LakeReader, Position
from headrace_lake.service.brokers import Brokers
from headrace_lake.service.discovery import Discovered, Discovery
from headrace_lake.service.jobs import Jobs
from headrace_lake.service.membership import Membership
from headrace_lake.service.memory_budget import MemoryBudget
from headrace_lake.service.process_memory import ProcessMemory
from headrace_lake.service.table_task import TableTask
from headrace_lake.service.table_writer import TableWriter
from storage_engine.client.cluster import DEADLINE_MS, Cluster
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.security.client_security import ClientSecurity
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, monotonic_ms

CLIENT_ID = "headrace-lake"
ASK_MS = 15_000
"""For questions before a table is opened, for which other tables wait."""
LOOK_MS = 5_000
"""Between two looks for topics."""
WAIT_MS = 100
"""The longest wait for records before the rest is looked after."""
POLL_INTERVAL_MS = 60_000
"""An instance whose reading thread hangs for so long gives its partitions to others."""
END_MS = 20_000
"""For the last commits."""
HUNG_MS = 10_000
"""While rows take all the memory that they may and none goes away, a table whose thread hangs has
to let go."""

log = logging.getLogger(__name__)


class LakeService:
    """`run` it in one thread; `stop` it from any."""

    def __init__(self, settings: LakeSettings, security: ClientSecurity | None) -> None:
        """ConfigError for settings of the client that are wrong."""
        config = ConsumerConfig.of(
            {
                **settings.client,
                "bootstrap.servers": settings.bootstrap_servers,
                "client.id": CLIENT_ID,
                "group.id": settings.group,
                "session.timeout.ms": settings.session_timeout_ms,
                "heartbeat.interval.ms": max(1, settings.session_timeout_ms // 6),
                "max.poll.interval.ms": POLL_INTERVAL_MS,
                "enable.auto.commit": False,
            }
        )
        self._settings = settings
        self._reading = _cluster(settings, security)
        self._looking = _cluster(settings, security, ASK_MS)
        self._brokers = Brokers(_cluster(settings, security, ASK_MS))
        self._reader = LakeReader(self._reading)
        self._budget = MemoryBudget(settings.memory_bytes)
        self._memory = ProcessMemory()
        self._jobs = Jobs()
        self._discovery = Discovery(settings, self._looking)
        self._membership = Membership(config)
        self.tables: dict[str, TableTask] = {}
        """By topic."""
        self.refused: Mapping[str, str] = {}
        """By topic, why it has no table."""
        self._is_looking = False
        self._look_at_ms = 0
        self._away: str | None = None
        self._ends = False
        self._moved_ms = monotonic_ms()

    def stop(self) -> None:
        """End `run` soon; also in a signal handler."""
        self._ends = True

    def run(self) -> None:
        """Until `stop`; then what was read is committed. HeadraceError where the brokers refuse the
        instance for good."""
        while not self._ends:
            self._turn()
        deadline = Deadline.after(END_MS)
        while [table for table in self.tables.values() if table.finish()] and not deadline.passed:
            self._jobs.finish(WAIT_MS)

    def _turn(self) -> None:
        self._look_for_topics()
        for topics in self._membership.changes():
            for topic in topics:
                self._give(topic)
        now_ms = monotonic_ms()
        for table in self.tables.values():
            table.step(now_ms)
        if self._budget.is_full:
            self._make_room(now_ms)
        elif self._reader.is_idle:
            self._jobs.finish(WAIT_MS)
        else:
            self._read(self._wait_ms(now_ms))
        if self._jobs.finish():
            self._moved_ms = monotonic_ms()
        self._memory.give_back()

    def _wait_ms(self, now_ms: int) -> int:
        due_ms = [each for each in (table.due_ms() for table in self.tables.values()) if each]
        return max(0, min([now_ms + WAIT_MS, *due_ms]) - now_ms)

    def _read(self, wait_ms: int) -> None:
        for fetched in self._reader.poll(wait_ms):
            table = self.tables.get(fetched.tp.topic)
            if table is not None:
                table.take(fetched, monotonic_ms())
        for tp, error in self._reader.failures().items():
            table = self.tables.get(tp.topic)
            if table is not None:
                table.failed(tp, error)

    def _make_room(self, now_ms: int) -> None:
        """Have the largest table commit; wait for what is at work."""
        tables = sorted(self.tables.values(), key=lambda table: -table.held_bytes)
        for table in tables:
            if table.held_bytes and not table.is_busy:
                table.step(now_ms, needs_room=True)
                break
        if self._jobs.finish(WAIT_MS):
            self._moved_ms = monotonic_ms()
        elif now_ms - self._moved_ms >= HUNG_MS:
            hung = next((each for each in tables if each.is_busy and each.held_bytes), None)
            if hung is not None:
                hung.let_go(f"its store has not answered for {HUNG_MS // 1000} s")

    # --- topics and partitions ---

    def _look_for_topics(self) -> None:
        if self._is_looking or monotonic_ms() < self._look_at_ms:
            return
        self._is_looking = True
        look = partial(self._discovery.look, self._membership.owned)
        self._jobs.start(look, self._found, self._not_found)

    def _found(self, result: Discovered) -> None:
        plan = result.plan
        self._looked()
        if self._away is not None:
            log.info("the brokers answer again")
        self._away = None
        for topic, line in plan.refused.items():
            if self.refused.get(topic) != line:
                log.error("stopped: %s", line)
        self.refused = plan.refused
        for topic, table in list(self.tables.items()):
            wanted = plan.tables.get(topic)
            if wanted is None or wanted != table.settings:
                table.close()
                del self.tables[topic]
                if wanted is None:
                    log.info("topic '%s' is not written any more", topic)
        for topic, wanted in plan.tables.items():
            if topic not in self.tables:
                log.info("topic '%s' is written into %s", topic, wanted.location)
                self.tables[topic] = self._new_task(wanted)
                self._give(topic)
        self._membership.subscribe(plan.tables)
        for tp, end in result.ends.items():
            if tp.topic in self.tables:
                self.tables[tp.topic].figures.ends[tp] = end

    def _new_task(self, settings: TableSettings) -> TableTask:
        return TableTask(
            settings,
            TableWriter(settings, self._settings.store, self._brokers),
            self._reader,
            self._budget,
            self._jobs,
            self._tell_group,
        )

    def _not_found(self, error: Exception) -> None:
        self._looked()
        if not isinstance(error, HeadraceError):
            log.error("the look for topics failed", exc_info=error)
        elif str(error) != self._away:
            log.warning("topics can't be looked for: %s; it is tried again", error)
        self._away = str(error)

    def _looked(self) -> None:
        self._is_looking = False
        self._look_at_ms = monotonic_ms() + LOOK_MS

    def _give(self, topic: str) -> None:
        """Have the topic's table write the partitions that are this instance's."""
        table = self.tables.get(topic)
        if table is not None:
            table.own(frozenset(tp for tp in self._membership.owned if tp.topic == topic))

    def _tell_group(self, positions: Mapping[TopicPartition, Position]) -> None:
        self._membership.committed({tp: each.offset for tp, each in positions.items()})

    def close(self) -> None:
        """Let go of everything; what is in no commit is left to the next instance."""
        for table in self.tables.values():
            table.close()
        self._jobs.close()
        self._membership.close()
        self._reader.close()
        self._brokers.close()
        for cluster in (self._reading, self._looking):
            cluster.close()


def _cluster(
    settings: LakeSettings, security: ClientSecurity | None, deadline_ms: int = DEADLINE_MS
) -> Cluster:
    return Cluster(
        settings.bootstrap_servers,
        client_id=CLIENT_ID,
        deadline_ms=deadline_ms,
        security=security,
    )
