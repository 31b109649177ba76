"""One run: it makes a cluster, clients and a schedule of faults from a seed, checks the guarantees
after every event, then ends the faults and checks that the cluster converges.

    0 ....... seconds: faults ....... heal: converge ... one follower is cut off: it leaves the ISR
    ... heal: converge again, every producer is acknowledged once more

With transactions, the coordinator of the group is restarted once the cluster has converged, and the
next one takes long to load. At the end open transactions end, if need be by their timeout, and
readers must have read everything that is committed.

A run is a function of the seed, its seconds, its workloads, and the numbers of the faults that take
place.
"""

import gc
import os
import random
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from simulation.checks.checkers import Checker
from simulation.checks.convergence import Convergence
from simulation.checks.ledger import InvariantViolation
from simulation.checks.trace import Trace
from simulation.faults.faults import (
    SESSION_MS,
    Fault,
    FaultKind,
    disk_faults_of,
    machine_faults_of,
    marker_faults_of,
    port_faults_of,
    schedule_of,
)
from simulation.faults.injection import RESTART_PAUSE_MS, Injector
from simulation.faults.placement import Placement, placement_of
from simulation.groups.workload import Groups
from simulation.groups.workload import settings_of as group_settings_of
from simulation.records import SAFE, UNCLEAN, DeletedRecords, PlainRecords
from simulation.shared import Profile, Run, profile_of
from simulation.transactions.group_ledger import GROUP_STATE
from simulation.transactions.workload import STATE_PARTITIONS, Transactions, settings_of
from simulation.typed.workload import BROKER_SETTINGS, TypedWorkload
from simulation.workload import Workload, WorkloadProducer
from simulation.world.broker import SimulatedBroker
from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.core.settings.settings import BY_PORT, DEATH_PROOF

LAG_MAX_MS = 1500
"""replica.lag.time.max.ms. Short, as all these times are, so that much can happen in a second."""
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": str(LAG_MAX_MS),
    # Given, so that seeds keep their course.
    "replica.fetch.wait.max.ms": "500",
    "replica.fetch.backoff.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "1500",
    "leader.imbalance.check.interval.seconds": "2",
    "default.replication.factor": "3",
}
DISK_SETTINGS = {
    "log.flush.scheduler.interval.ms": "700",
    "log.flush.offset.checkpoint.interval.ms": "900",
    "log.retention.check.interval.ms": "600",
    # The clients' records are older than any limit.
    "log.retention.ms": "-1",
}
"""The settings where disks fail: much is flushed and deleted."""
MOVE_RATES = (3_000, 20_000, 10_000_000)
"""replica.alter.log.dirs.io.max.bytes.per.second, of which each seed has one."""
SCRIPT_SETTINGS = {"auto.leader.rebalance.enable": "false"}
"""The settings of a seed with one script alone: leaders stay where the script wants them."""
CONVERGE_MS = 45_000
"""A session's timeout, a lag time, the longest back-off and the longest request that nobody
answers (30 s), one after another."""
LAGGARD_MS = 2 * (LAG_MAX_MS + LAG_MAX_MS // 2) + 4000
"""The time in which a laggard leaves the ISR: it is found at the latest half a lag time after the
lag time, and a write to ZooKeeper later; a new leader (the preferred one returns) gives it all that
time once more."""
CHECK_MS = 250
"""How often the run checks whether the cluster has converged."""
RESTARTS = 2
"""The most restarts of a broker that coordinates both a group and transactions."""
SLOW_ELECTION_MS = 500
"""The time of an election, and of a client's search for the new leader."""
FULL_CHECK_MS = 20_000
"""How often all logs are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedOutcome:
    """The outcome of a seed."""

    seed: int
    profile: Profile
    faults: list[Fault]
    done: Counter[FaultKind] = field(default_factory=Counter)
    events: int = 0
    simulated_ms: int = 0
    acknowledged: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """The number of things done in transactions, by kind."""
    rule: str | None = None
    """The violated invariant; None when none was."""
    failure: str | None = None
    trace: list[str] = field(default_factory=list)
    """The trace of a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class With:
    """The parts of a run besides plain records."""

    transactions: bool = False
    typed: bool = False
    """True with typed topics."""
    proof: bool = False
    """True when a broker's death may be known before its session ends."""
    disks: bool = False
    """True when brokers have two log dirs, which fail."""
    groups: bool = False
    """True with the members of a group."""


class SeedRun:
    """One seed's cluster, clients and faults."""

    def __init__(
        self, seed: int, what: With, *, seconds: int, only: Collection[int] | None = None
    ) -> None:
        """`only`: the numbers of the faults that take place; None: all."""
        self._with = what
        self._seconds = seconds
        profile = profile_of(seed)
        placement = placement_of(seed, profile.brokers) if what.proof else None
        faults = _schedule(seed, profile, what, placement, seconds)
        self.faults = [fault for fault in faults if only is None or fault.number in only]
        self._choose = random.Random(f"run {seed}")
        self.cluster = _make_cluster(seed, profile, what, placement)
        self.trace = Trace(self.cluster.loop)
        self.checker = Checker(self.cluster, self.trace)
        self.checker.disks_fail = what.disks
        if placement is not None:
            self.checker.sessions.may_be_mistaken = placement.proof == BY_PORT
            self.trace.note(str(placement))
        self.run = run = Run(seed, profile, self.cluster, self.trace, self.checker)
        self.transactions = (
            Transactions(run, SAFE, has_members=what.groups) if what.transactions else None
        )
        self.workloads: list[Workload] = [
            PlainRecords(run, self._choose),
            *([self.transactions] if self.transactions else ()),
            *([TypedWorkload(run)] if what.typed else ()),
            *([DeletedRecords(run)] if what.disks else ()),
            *([Groups(run)] if what.groups else ()),
        ]
        states = STATE_PARTITIONS if what.transactions else [GROUP_STATE] if what.groups else []
        partitions = SAFE + states
        self.injector = Injector(run, growing_topic=UNCLEAN.topic, partitions=partitions)

    @property
    def _producers(self) -> list[WorkloadProducer]:
        return [producer for workload in self.workloads for producer in workload.producers]

    def outcome(self) -> SeedOutcome:
        """Run to the end, or to the first violation."""
        rule = failure = None
        try:
            self._run()
        except InvariantViolation as violation:
            rule, failure = violation.rule, str(violation)
        except Exception as error:  # noqa: BLE001 - any that escapes is what we look for
            where = traceback.extract_tb(error.__traceback__)[-1]
            rule = f"nothing escapes: {type(error).__name__} in {where.name}"
            failure = f"{rule} ({Path(where.filename).name}:{where.lineno}): {error}"
        if failure is not None:
            self.trace.note(f"VIOLATED {failure}")
        counts: dict[str, int] = {}
        for workload in self.workloads:
            counts |= workload.counts()
        if self._with.proof:
            sessions = self.checker.sessions
            counts["closed sessions"] = sessions.of_the_dead
            counts["closed by watchers"] = sessions.by_watchers
            counts["deposed"] = len(sessions.deposed)
        return SeedOutcome(
            seed=self.run.seed,
            profile=self.run.profile,
            faults=self.faults,
            done=self.injector.done,
            events=self.cluster.loop.events,
            simulated_ms=self.cluster.loop.now_ms,
            acknowledged=sum(producer.acknowledged for producer in self._producers),
            counts=counts,
            rule=rule,
            failure=failure,
            trace=self.trace.lines() if failure else [],
        )

    def _run(self) -> None:
        for broker in self.cluster.brokers:
            self.checker.started(broker)
        self.cluster.loop.after_event = self.checker.after_event
        self.cluster.zookeeper.on_write = self.checker.on_zookeeper_write
        self.cluster.zookeeper.on_session_closed = self.checker.sessions.closed
        self.cluster.zookeeper.on_watcher_done = self.checker.sessions.watcher_done
        for workload in self.workloads:
            workload.create_topics()
        for workload in self.workloads:
            workload.start()
        self.injector.schedule(self.faults)
        left_ms = self._seconds * 1000
        while left_ms > 0:
            self.cluster.loop.run_for(min(left_ms, FULL_CHECK_MS))
            left_ms -= FULL_CHECK_MS
            self.checker.check_everything()
        self.injector.heal()
        self._converge()
        if self.transactions is not None:
            self._fail_over_slowly(self.transactions)
        self._expel_a_laggard()
        self.cluster.network.heal()
        self._converge()
        since_ms = self.cluster.loop.now_ms
        self._wait("every producer is acknowledged", lambda: self._unacknowledged(since_ms))
        for workload in self.workloads:
            workload.finish()
            self._wait(workload.ends, workload.left)
        self.checker.check_everything()
        for workload in self.workloads:
            workload.check_end()

    def _unacknowledged(self, since_ms: int) -> list[str]:
        return [
            f"{producer.name} to {producer.partition}"
            for producer in self._producers
            if producer.acks and producer.acknowledged_ms < since_ms
        ]

    def _wait(self, rule: str, left: Callable[[], list[str]]) -> None:
        """Wait until nothing is left."""
        end_ms = self.cluster.loop.now_ms + CONVERGE_MS
        while found := left():
            if self.cluster.loop.now_ms >= end_ms:
                raise InvariantViolation(rule, f"not within {CONVERGE_MS} ms: {'; '.join(found)}")
            self.cluster.loop.run_for(CHECK_MS)

    def _converge(self) -> None:
        convergence = Convergence(self.cluster, self.checker)
        self._wait("a cluster without faults converges", convergence.open_ends)

    def _fail_over_slowly(self, world: Transactions) -> None:
        """Have another broker coordinate the group, with a slow load: some transactions end
        meanwhile whose offsets wait there. Among other faults that hardly ever happens."""
        for _ in range(RESTARTS):
            broker = self.cluster[self.cluster.state(GROUP_STATE).leader]
            others = [self.cluster.state(tp).leader for tp in STATE_PARTITIONS if tp != GROUP_STATE]
            if broker.id not in others:
                break
            # In this case the transactions would wait for their own coordinator.
            self._restart(broker)
            self._converge()
        loop = self.cluster.loop
        # A load consists of three pieces of work, one after another.
        loop.work_ms = self._choose.randint(300, 900)
        self.trace.note("--- work in the background takes long ---")
        world.hurries = True
        self._restart(broker)
        loop.run_for(3 * loop.work_ms + SLOW_ELECTION_MS)
        world.hurries = False
        loop.work_ms = 1

    def _restart(self, broker: SimulatedBroker) -> None:
        self.trace.note(f"--- broker {broker.id} restarts ---")
        broker.kill(session_ends_at_once=True)
        self.cluster.loop.run_for(RESTART_PAUSE_MS)
        broker.begin()
        self.checker.started(broker)

    def _expel_a_laggard(self) -> None:
        """Check that a follower that can't fetch, though its session lives, leaves the ISRs of
        others."""
        laggard = self._hold_up_a_follower()
        end_ms = self.cluster.loop.now_ms + LAGGARD_MS
        while kept := self._kept_by_others(laggard.id):
            if self.cluster.controller is laggard:
                # The leader was elected since: a controller that is cut off can't send anybody the
                # leadership.
                self.cluster.network.heal()
                laggard = self._hold_up_a_follower()
                end_ms = self.cluster.loop.now_ms + LAGGARD_MS
            if self.cluster.loop.now_ms >= end_ms:
                raise InvariantViolation(
                    "a laggard leaves the ISR",
                    f"broker {laggard.id} can fetch no more for {LAGGARD_MS} ms: {', '.join(kept)}",
                )
            self.cluster.loop.run_for(CHECK_MS)

    def _hold_up_a_follower(self) -> SimulatedBroker:
        """Choose a broker, and hold up all that it sends to others."""
        controller = self.cluster.controller
        assert controller is not None
        laggard = self._choose.choice([b for b in self.cluster.brokers if b is not controller])
        self.trace.note(f"--- broker {laggard.id} can't fetch any more ---")
        for broker in self.cluster.brokers:
            if broker is not laggard:
                self.cluster.network.hold_up(laggard.id, broker.id)
        return laggard

    def _kept_by_others(self, laggard: int) -> list[str]:
        """Return the partitions that are produced to, led by others, with the laggard in their
        ISR."""
        kept = []
        for tp in SAFE:
            state = self.cluster.state(tp)
            if state.leader != laggard and laggard in state.isr:
                kept.append(f"{tp} has ISR {list(state.isr)}")
        return kept


def _schedule(
    seed: int, profile: Profile, what: With, placement: Placement | None, seconds: int
) -> list[Fault]:
    brokers = profile.brokers
    faults = schedule_of(seed, seconds=seconds)
    if what.transactions:
        faults += marker_faults_of(seed, seconds=seconds)
    if placement is not None and placement.proof == BY_PORT:
        faults += port_faults_of(seed, brokers=brokers, seconds=seconds)
    if placement is not None and seed >= 0:
        faults += machine_faults_of(seed, brokers=brokers, seconds=seconds)
    if what.disks and seed >= 0:
        faults += disk_faults_of(seed, brokers=brokers, seconds=seconds)
    return faults


def _make_cluster(
    seed: int, profile: Profile, what: With, placement: Placement | None
) -> SimulatedCluster:
    root = Path("/simulated")
    settings = dict(SETTINGS)
    if seed < 0:
        settings |= SCRIPT_SETTINGS
    if what.transactions:
        settings |= settings_of(profile)
    if what.typed:
        settings |= BROKER_SETTINGS
    if what.groups:
        settings |= group_settings_of(profile)
    if what.disks:
        rate = random.Random(f"rate of moves {seed}").choice(MOVE_RATES)
        settings |= DISK_SETTINGS
        settings["replica.alter.log.dirs.io.max.bytes.per.second"] = str(rate)
    if placement is not None:
        settings[DEATH_PROOF] = placement.proof
    notices, watchers = random.Random(f"notices {seed}"), random.Random(f"watchers {seed}")
    cluster = SimulatedCluster(
        root,
        profile.brokers,
        log_dirs=2 if what.disks else 1,
        disk=lambda broker: SimulatedDisk(root / f"broker{broker}"),
        machines=placement.make_machines(notices, watchers) if placement else (),
        **settings,  # type: ignore[arg-type]
    )
    cluster.network.cuts_refuse = placement is not None and placement.cuts_refuse
    return cluster


def run_seed(
    seed: int, *, seconds: int, only: Collection[int] | None = None, **what: bool
) -> SeedOutcome:
    """Run one seed, with what `With` says. All objects of the run are freed, also where no garbage
    collection runs."""
    # Ids of topics and members, by whose order partitions are assigned, follow from the seed, too.
    with patch.object(os, "urandom", random.Random(f"ids {seed}").randbytes):
        run = SeedRun(seed, With(**what), seconds=seconds, only=only)
        outcome = run.outcome()
    del run
    if not gc.isenabled():
        gc.collect()
    return outcome
