"""One run: it makes a cluster, clients and a schedule of faults from a seed, checks the guarantees
after every event, then ends the faults and checks that the cluster converges.

    0 ....... seconds: faults ....... heal: converge ... one follower is cut off: it leaves the ISR
    ... heal: converge again, every producer is acknowledged once more

    ... with transactions: before that the group's coordinator is restarted, the next one takes long
    to load; in the end those that are open end, and readers get what they should

A run is a function of (seed, seconds, with transactions or without, with typed topics or without,
the numbers of the faults that take place).
"""

import gc
import random
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from simulation.checks.checkers import Checker
from simulation.checks.convergence import Convergence
from simulation.checks.ledger import InvariantViolation
from simulation.checks.trace import Trace
from simulation.deleted_records import DeletedRecords
from simulation.faults.faults import (
    SESSION_MS,
    Fault,
    FaultKind,
    Profile,
    disk_faults_of,
    marker_faults_of,
    port_faults_of,
    profile_of,
    schedule_of,
)
from simulation.faults.injection import RESTART_PAUSE_MS, Injector
from simulation.faults.placement import Placement, placement_of
from simulation.transactions.group_ledger import GROUP_STATE
from simulation.transactions.world import (
    STATE_PARTITIONS,
    TransactionalWorld,
    settings_of,
)
from simulation.typed.world import BROKER_SETTINGS, TypedWorld
from simulation.workload import WorkloadConsumer, WorkloadProducer
from simulation.world.broker import SimulatedBroker
from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.core.ids import TopicPartition
from storage_engine.core.settings.settings import BY_PORT, DEATH_PROOF

LAG_MAX_MS = 1500
"""replica.lag.time.max.ms. Short, as all these times are, so that much can happen in a second."""
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": str(LAG_MAX_MS),
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

SAFE = "t"
UNCLEAN = "u"
SAFE_PARTITIONS = 2


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


class SeedRun:
    """One seed's cluster, clients and faults."""

    def __init__(
        self,
        seed: int,
        *,
        seconds: int,
        transactions: bool,
        typed: bool = False,
        proof: bool = False,
        disks: bool = False,
        only: Collection[int] | None = None,
    ) -> None:
        """`typed`: with typed topics, too. `proof`: who is dead may be known before its session
        ends. `disks`: brokers have two log dirs, which fail. `only`: the numbers of the
        faults that take place; None: all."""
        self.seed = seed
        self.profile = profile_of(seed)
        self._seconds = seconds
        self._disks = disks
        placement = placement_of(seed, self.profile.brokers) if proof else None
        self.faults = [
            fault
            for fault in self._schedule(placement, transactions=transactions)
            if only is None or fault.number in only
        ]
        self._choose = random.Random(f"run {seed}")
        self._has_proof = proof
        self.cluster = self._make_cluster(placement, transactions=transactions, typed=typed)
        self.trace = Trace(self.cluster.loop)
        self.checker = Checker(self.cluster, self.trace)
        self.checker.disks_fail = disks
        if placement is not None:
            self.checker.may_be_mistaken = placement.proof == BY_PORT
            self.trace.note(str(placement))
        safe = [TopicPartition(SAFE, p) for p in range(SAFE_PARTITIONS)]
        self.transactions: TransactionalWorld | None = None
        if transactions:
            self.transactions = TransactionalWorld(
                self.cluster, self.checker, self.trace, self.profile, seed, safe
            )
        self.typed: TypedWorld | None = None
        if typed:
            self.typed = TypedWorld(self.cluster, self.checker, self.profile, seed)
        self.deleted: DeletedRecords | None = None
        if disks:
            self.deleted = DeletedRecords(self.cluster, self.checker, self.profile, seed)
        self.injector = Injector(
            self.cluster,
            self.checker,
            self.trace,
            self.profile,
            random.Random(f"delays {seed}"),
            growing_topic=UNCLEAN,
            partitions=safe + (STATE_PARTITIONS if transactions else []),
        )
        self.producers: list[WorkloadProducer] = []
        self.consumers: list[WorkloadConsumer] = []

    def _schedule(self, placement: Placement | None, *, transactions: bool) -> list[Fault]:
        seed, seconds = self.seed, self._seconds
        faults = schedule_of(seed, seconds=seconds)
        if transactions:
            faults += marker_faults_of(seed, seconds=seconds)
        if placement is not None and placement.proof == BY_PORT:
            faults += port_faults_of(seed, brokers=self.profile.brokers, seconds=seconds)
        if self._disks and seed >= 0:
            faults += disk_faults_of(seed, brokers=self.profile.brokers, seconds=seconds)
        return faults

    def _make_cluster(
        self, placement: Placement | None, *, transactions: bool, typed: bool
    ) -> SimulatedCluster:
        root, seed = Path("/simulated"), self.seed
        notices = random.Random(f"notices {seed}")
        cluster = SimulatedCluster(
            root,
            self.profile.brokers,
            log_dirs=2 if self._disks else 1,
            disk=lambda broker: SimulatedDisk(root / f"broker{broker}"),
            machines=placement.make_machines(notices) if placement else (),
            **SETTINGS  # type: ignore[arg-type]
            | (SCRIPT_SETTINGS if seed < 0 else {})
            | (settings_of(self.profile) if transactions else {})
            | (BROKER_SETTINGS if typed else {})
            | (_disk_settings(seed) if self._disks else {})
            | ({DEATH_PROOF: placement.proof} if placement else {}),
        )
        cluster.network.cuts_refuse = placement is not None and placement.cuts_refuse
        return cluster

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
        return SeedOutcome(
            seed=self.seed,
            profile=self.profile,
            faults=self.faults,
            done=self.injector.done,
            events=self.cluster.loop.events,
            simulated_ms=self.cluster.loop.now_ms,
            acknowledged=sum(producer.acknowledged for producer in self.producers),
            counts=(self.transactions.counts() if self.transactions else {})
            | (self.typed.counts() if self.typed else {})
            | (self._counts_of_proof() if self._has_proof else {}),
            rule=rule,
            failure=failure,
            trace=self.trace.lines() if failure else [],
        )

    def _counts_of_proof(self) -> dict[str, int]:
        checker = self.checker
        return {"closed sessions": checker.closed_sessions, "deposed": len(checker.deposed)}

    def _run(self) -> None:
        self._watch()
        self._create_topics()
        self._start_clients()
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
        self._finish_producers()
        if self.transactions is not None:
            self._finish_transactions(self.transactions)
        self.checker.check_everything()
        if self.typed is not None:
            self.typed.check_end()

    def _watch(self) -> None:
        for broker in self.cluster.brokers:
            self.checker.started(broker)
        self.cluster.loop.after_event = self.checker.after_event
        self.cluster.zookeeper.on_write = self.checker.on_zookeeper_write
        self.cluster.zookeeper.on_session_closed = self.checker.session_closed

    def _create_topics(self) -> None:
        profile = self.profile
        settings = {"min_insync_replicas": str(profile.min_insync_replicas)}
        if profile.durable:
            settings["flush_before_ack"] = "true"
        self.checker.expect_topic(
            SAFE,
            unclean=False,
            min_in_sync=profile.min_insync_replicas,
            durable=profile.durable,
        )
        self.checker.expect_topic(UNCLEAN, unclean=True, min_in_sync=1)
        self.cluster.create_topic(SAFE, SAFE_PARTITIONS, **settings)
        self.cluster.create_topic(UNCLEAN, 1, unclean_leader_election_enable="true")
        if self.typed is not None:
            self.typed.create_topics()
        if self.deleted is not None:
            self.deleted.create_topic()

    def _start_clients(self) -> None:
        choose = self._choose
        safe = [TopicPartition(SAFE, p) for p in range(SAFE_PARTITIONS)]
        unclean = TopicPartition(UNCLEAN, 0)
        kinds = [
            (safe[0], -1, True),
            (safe[0], -1, False),
            (safe[1], -1, True),
            (safe[1], 1, False),
            (safe[choose.randrange(SAFE_PARTITIONS)], 0, False),
            (unclean, -1, False),
        ]
        for number, (tp, acks, idempotent) in enumerate(kinds, 1):
            producer = WorkloadProducer(
                self.cluster,
                self.checker,
                random.Random(f"producer {self.seed} {number}"),
                tp,
                number=number,
                acks=acks,
                idempotent=idempotent,
                pause_ms=choose.choice((100, 300, 700)),
            )
            self.producers.append(producer)
            producer.run()
        for number in (1, 2):
            consumer = WorkloadConsumer(
                self.cluster,
                self.checker,
                random.Random(f"consumer {self.seed} {number}"),
                [*safe, unclean],
                number=number,
                pause_ms=choose.choice((250, 600)),
            )
            self.consumers.append(consumer)
            consumer.run()
        if self.transactions is not None:
            self.transactions.start()
        if self.typed is not None:
            self.typed.start()
            self.producers += self.typed.producers
        if self.deleted is not None:
            self.deleted.start()
            self.producers += self.deleted.producers

    def _converge(self) -> None:
        convergence = Convergence(self.cluster, self.checker)
        self._wait_for_nothing(convergence.open_ends, "a cluster without faults converges")

    def _wait_for_nothing(self, left: Callable[[], list[str]], rule: str) -> None:
        """Let time pass until nothing is left; the rule is violated where that takes too long."""
        end_ms = self.cluster.loop.now_ms + CONVERGE_MS
        while still := left():
            if self.cluster.loop.now_ms >= end_ms:
                raise InvariantViolation(rule, f"not within {CONVERGE_MS} ms: {'; '.join(still)}")
            self.cluster.loop.run_for(CHECK_MS)

    def _fail_over_slowly(self, world: TransactionalWorld) -> None:
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
        for tp in (TopicPartition(SAFE, p) for p in range(SAFE_PARTITIONS)):
            state = self.cluster.state(tp)
            if state.leader != laggard and laggard in state.isr:
                kept.append(f"{tp} has ISR {list(state.isr)}")
        return kept

    def _finish_producers(self) -> None:
        since_ms = self.cluster.loop.now_ms

        def waiting() -> list[str]:
            return [
                f"{producer.name} to {producer.partition}"
                for producer in self.producers
                if producer.acks and producer.acknowledged_ms < since_ms
            ]

        self._wait_for_nothing(waiting, "every producer is acknowledged")

    def _finish_transactions(self, world: TransactionalWorld) -> None:
        """End all open transactions, if need be by their timeout, then read everything."""
        world.finish()
        self._wait_for_nothing(world.left, "every transaction ends, and readers come to its end")
        world.check_end()


def _disk_settings(seed: int) -> dict[str, str]:
    rate = random.Random(f"rate of moves {seed}").choice(MOVE_RATES)
    return DISK_SETTINGS | {"replica.alter.log.dirs.io.max.bytes.per.second": str(rate)}


def run_seed(
    seed: int,
    *,
    seconds: int,
    transactions: bool = False,
    typed: bool = False,
    proof: bool = False,
    disks: bool = False,
    only: Collection[int] | None = None,
) -> SeedOutcome:
    """Run one seed. All objects of the run are freed, also where no garbage collection runs."""
    run = SeedRun(
        seed,
        seconds=seconds,
        transactions=transactions,
        typed=typed,
        proof=proof,
        disks=disks,
        only=only,
    )
    outcome = run.outcome()
    del run
    if not gc.isenabled():
        gc.collect()
    return outcome
