"""The rounds of the failover benchmark: which brokers are killed or stopped, as clients see it.

The remaining brokers' answers to clients count; only the time of the watch is taken from the
controller's log.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.support.failover_clients import TimedProducer, Watched, watch_fired_s
from benchmarks.support.rounds import Goal, Result, alone, judged
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster
from storage_engine.core.settings.settings import BY_BROKER_KEY
from storage_engine.net.deadline import Deadline
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.table import report_line

SLACK_S = 1.0
"""The goal is the session timeout plus this time."""
SHUTDOWN_GAP_GOAL_MS = Goal(most=500.0)
NO_FAILURES = Goal(most=0.0)
ALL_LEADERS_GOAL_S = Goal(most=3.0)
"""The project's own goals, for 1,000 partitions."""

BALANCE_CHECK_S = 5
"""`leader.imbalance.check.interval.seconds`: short, so that a broker soon leads again."""

_TOPIC = "bench"
_BROKERS = 3
_SESSION_TIMEOUT = "zookeeper.session.timeout.ms"
_READY_MS = 180_000
"""The limit for a killed broker to check its logs, get in sync and lead again."""
_FAILOVER_MS = 120_000
_STEADY_MS = 2_000
"""How long a producer runs before and after the event whose gap it measures."""
_PRODUCED_PARTITIONS = 4


def measure(folder: Path, args: argparse.Namespace) -> Iterator[Result]:
    """Yield one result after the other."""
    settings = [
        ("leader.imbalance.check.interval.seconds", str(BALANCE_CHECK_S)),
        ("leader.imbalance.per.broker.percentage", "0"),
    ]
    timeout_ms = args.session_timeout_ms
    if timeout_ms is not None:
        settings.append((_SESSION_TIMEOUT, str(timeout_ms)))
    else:
        timeout_ms = int(str(BY_BROKER_KEY[_SESSION_TIMEOUT].default))
    request = UpRequest(brokers=_BROKERS, port=0, settings=tuple(settings))
    with LocalCluster.running(folder / "cluster", request) as cluster:
        rounds = _Rounds(cluster, args, Goal(most=timeout_ms / 1000 + SLACK_S))
        rounds.make_topic()
        yield from rounds.kill_leader()
        yield from rounds.stop_leader()
        yield from rounds.kill_controller()


class _Rounds:
    """The rounds of all figures, on one cluster."""

    def __init__(
        self, cluster: LocalCluster, args: argparse.Namespace, session_goal_s: Goal
    ) -> None:
        self._cluster = cluster
        self._watched = Watched(cluster, _READY_MS)
        self._partitions, self._rounds = args.partitions, args.rounds
        self._session_goal_s = session_goal_s
        self._leader = self._watched.not_controller()
        self._made = 0

    def make_topic(self) -> None:
        """Create a topic whose partitions have their first replica on the broker that will go."""
        others = [b for b in range(1, _BROKERS + 1) if b != self._leader]
        assignment = {
            p: [self._leader, others[p % 2], others[1 - p % 2]] for p in range(self._partitions)
        }
        with Cluster(self._cluster.bootstrap_servers) as client:
            create_topic(client, _TOPIC, assignment=assignment)
        self._watched.until_writable(_TOPIC)
        self._until_as_before()

    def kill_leader(self) -> Iterator[Result]:
        """Kill the broker that leads all partitions."""
        writable_s, leaders_s = [], []
        for number in self._numbered("broker killed"):
            with self._watched.survivors(self._leader) as survivors:
                controller = survivors.controller_id()
                started, started_at = time.monotonic(), time.time()
                self._cluster.kill_broker(self._leader)
                deadline = Deadline.after(_FAILOVER_MS)
                survivors.until_led(
                    _TOPIC, self._partitions, deadline, lambda row: row.leader != self._leader
                )
                led = time.monotonic() - started
                survivors.write_to_all(_TOPIC, deadline)
                writable_s.append(time.monotonic() - started)
            watch_s = watch_fired_s(self._log_file(controller), after_s=started_at) - started_at
            leaders_s.append(led - watch_s)
            self._say(number, f"watch after {watch_s:.2f} s, all led after {led:.2f} s")
            self._restart(self._leader)
        what = f"broker killed that led {self._partitions} partitions"
        yield alone(
            f"{what}: until all of them accept acks=all, s",
            max(writable_s),
            goal=self._session_goal_s,
        )
        yield alone(
            f"{what}: from the watch to the last leader in metadata, s",
            max(leaders_s),
            goal=ALL_LEADERS_GOAL_S,
        )

    def stop_leader(self) -> Iterator[Result]:
        """Shut that broker down in order, under a steady producer."""
        before_ms, gap_ms = [], []
        failed = 0
        for number in self._numbered("broker stopped"):
            with TimedProducer(
                self._cluster.bootstrap_servers, _TOPIC, range(_PRODUCED_PARTITIONS)
            ) as producer:
                time.sleep(_STEADY_MS / 1000)
                before_ms.append(producer.take_longest_gap_ms())
                self._cluster.stop_broker(self._leader)
                time.sleep(_STEADY_MS / 1000)
                gap_ms.append(producer.take_longest_gap_ms())
            failed += producer.failed
            self._say(number, f"gap {gap_ms[-1]:.0f} ms, before {before_ms[-1]:.0f} ms")
            self._restart(self._leader)
        what = f"broker stopped that led {self._partitions} partitions, steady producer"
        worst = gap_ms.index(max(gap_ms))
        yield Result(
            what=f"{what}: longest gap between acks, ms; limit: before",
            measured=round(gap_ms[worst]),
            limit=round(before_ms[worst]),
            ratio=None,
            **judged(SHUTDOWN_GAP_GOAL_MS, gap_ms[worst]),
        )
        yield alone(f"{what}: failed sends", failed, goal=NO_FAILURES)

    def kill_controller(self) -> Iterator[Result]:
        """Kill the controller, whichever broker that is now."""
        named_s, acting_s = [], []
        for number in self._numbered("controller killed"):
            controller = self._watched.controller()
            with self._watched.survivors(controller) as survivors:
                started = time.monotonic()
                self._cluster.kill_broker(controller)
                survivors.until_controller_is_not(controller, Deadline.after(_FAILOVER_MS))
                named_s.append(time.monotonic() - started)
                self._made += 1
                with Cluster(survivors.bootstrap_servers) as client:
                    create_topic(client, f"{_TOPIC}-{self._made}", 1, _BROKERS - 1)
                acting_s.append(time.monotonic() - started)
            self._say(number, f"named after {named_s[-1]:.2f} s, acts after {acting_s[-1]:.2f} s")
            self._restart(controller)
        what = f"controller killed, {self._partitions} partitions"
        yield alone(
            f"{what}: until the others name a new one, s", max(named_s), goal=self._session_goal_s
        )
        yield alone(
            f"{what}: until that has created a topic, s", max(acting_s), goal=self._session_goal_s
        )

    # -- between the rounds ------------------------------------------------------------------------

    def _numbered(self, what: str) -> Iterator[str]:
        for number in range(1, self._rounds + 1):
            yield f"{what}, round {number} of {self._rounds}"

    def _say(self, number: str, what: str) -> None:
        report_line(f"{number}: {what}")

    def _restart(self, broker: int) -> None:
        self._watched.start(broker)
        self._until_as_before()

    def _until_as_before(self) -> None:
        self._watched.until_led(
            _TOPIC,
            self._partitions,
            lambda row: row.leader == self._leader and len(row.isr) == _BROKERS,
        )

    def _log_file(self, broker: int) -> Path:
        return self._cluster.directory / self._cluster.state.broker(broker).log_file
