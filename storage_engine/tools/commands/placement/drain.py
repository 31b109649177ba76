"""Empty a broker, or all brokers of a machine: no new replicas, then leaders away, then replicas.

The broker is cordoned first. Then in-sync replicas elsewhere lead its partitions, and at last each
of its replicas is made anew on another broker, and removed once the new one is in sync. Partitions
are written and read all the time, and have as many replicas, on as many machines, as before. A dead
broker can be drained by its id: its replicas are copied from the leaders. It can't be cordoned.

Nothing is changed where a partition could not keep its number of replicas, or where a move could
not end; the error names the topics and what to do.

The command waits for the end. It may be ended at any time, also by a kill: brokers end what has
begun, and the same command goes on from there. The state file has the replicas before the first
change, so that --undo moves back what was moved, from any host that has the file. It is a plan for
'headrace reassign verify', too.

After a drain the broker stays cordoned: stop it, or 'headrace uncordon' it.

examples:
  headrace drain 4 --bootstrap-server 127.0.0.1:9092 --dry-run
  headrace drain 4 --bootstrap-server 127.0.0.1:9092 --throttle 50000000
  headrace drain host-2 --bootstrap-server 127.0.0.1:9092 --state /srv/drain-host-2.json
  headrace drain host-2 --bootstrap-server 127.0.0.1:9092 --state /srv/drain-host-2.json --undo
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from storage_engine.client.admin.topics import describe_topic_configs
from storage_engine.client.cluster import Cluster
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.client_settings import connect
from storage_engine.tools.document import Document
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.placement.cluster_layout import named_brokers, read_layout
from storage_engine.tools.placement.cordons import ALL_LOG_DIRS, read_cordons, set_cordons
from storage_engine.tools.placement.drain_plan import DrainPlan, plan_drain
from storage_engine.tools.placement.executor import Executor
from storage_engine.tools.placement.layout import Layout
from storage_engine.tools.placement.options import (
    add_connection,
    add_execution,
    add_target,
    executor_of,
)
from storage_engine.tools.placement.plan_state import (
    Phase,
    PlanState,
    held,
    read_state,
    write_state,
)
from storage_engine.tools.placement.reassign_plan import plan_document
from storage_engine.tools.placement.undo import PASSES, undo
from storage_engine.tools.table import print_json, print_rows, write_line

_ACTION = "drain"
_MIN_ISR = "min.insync.replicas"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace drain`."""
    add_target(parser, required=False)
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would move, and change nothing"
    )
    add_execution(parser, "headrace-drain-NAME.json")
    add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace drain`."""
    if args.target is None and not (args.undo and args.state):
        raise UsageError("name a BROKER or HOST; only --undo with --state FILE needs none")
    if args.undo and args.dry_run:
        raise UsageError("--undo and --dry-run do not go together")
    path = args.state or Path(f"headrace-drain-{args.target}.json")
    if "/" in (args.target or "") and args.state is None:
        raise UsageError(f"there is no host '{args.target}': names have no '/'")
    with connect(args.bootstrap_server, args.command_config) as cluster:
        if args.dry_run:
            _show(cluster, args)
            return 0
        with held(path):
            if args.undo:
                _undo(cluster, args, path)
            else:
                _Drain(cluster, args, path).run()
    return 0


def _min_isr(cluster: Cluster, topic: str) -> int:
    return int(describe_topic_configs(cluster, topic)[_MIN_ISR].value or 1)


def _plan(cluster: Cluster, layout: Layout, brokers: Sequence[int]) -> DrainPlan:
    return plan_drain(layout, brokers, lambda topic: _min_isr(cluster, topic))


def _show(cluster: Cluster, args: argparse.Namespace) -> None:
    layout = read_layout(cluster)
    brokers = named_brokers(layout, args.target)
    plan = _plan(cluster, layout, brokers)
    if args.json:
        print_json({"brokers": brokers, "leaders": len(plan.leaders), **plan_document(plan.moves)})
        return
    rows: list[Document] = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(layout.partitions[tp].replicas),
            "target": list(target),
            "bytes": layout.partitions[tp].size_bytes,
        }
        for tp, target in sorted(plan.moves.items())
    ]
    print_rows(("topic", "partition", "replicas", "target", "bytes"), rows)
    write_line(
        f"{len(plan.leaders)} leaders and {len(plan.moves)} partitions would move from "
        f"{_names(brokers)}; nothing was changed"
    )


def _names(brokers: Sequence[int]) -> str:
    return f"broker{'s' * (len(brokers) > 1)} {', '.join(map(str, brokers))}"


class _Drain:
    def __init__(self, cluster: Cluster, args: argparse.Namespace, path: Path) -> None:
        self._cluster = cluster
        self._args = args
        self._path = path
        self._executor: Executor = executor_of(cluster, args)
        self._leaders = 0
        self._dead: list[int] = []
        """Brokers that are drained, but can't be cordoned."""

    def run(self) -> None:
        layout = read_layout(self._cluster)
        brokers = named_brokers(layout, self._args.target)
        cluster_id = self._cluster.metadata([]).cluster_id
        known = read_state(self._path, cluster_id, _ACTION)
        if known is not None and known.brokers != tuple(brokers):
            raise CommandError(
                f"{self._path} is the state of {_names(known.brokers)}: name another file with "
                "--state"
            )
        if known is not None and known.phase is Phase.UNDOING:
            raise CommandError(
                f"'headrace drain --undo' has not ended yet: run it again with --state {self._path}"
            )
        plan = _plan(self._cluster, layout, brokers)
        if known is None or (known.phase is not Phase.UNDER_WAY and plan.moves):
            known = PlanState(
                action=_ACTION,
                cluster_id=str(cluster_id),
                phase=Phase.UNDER_WAY,
                plan={},
                before={},
                brokers=tuple(brokers),
                cordons=read_cordons(self._cluster, brokers),
            )
        self._carry_out(known, layout, plan)

    def _carry_out(self, state: PlanState, layout: Layout, plan: DrainPlan) -> None:
        state = self._kept(state, layout, plan)
        alive = [broker for broker in state.brokers if layout.place(broker).is_alive]
        set_cordons(self._cluster, dict.fromkeys(alive, ALL_LOG_DIRS))
        self._dead = [broker for broker in state.brokers if broker not in alive]
        if state.is_throttled and self._args.throttle is None:
            # Of a run that was ended.
            self._executor.end_throttle(state.plan)
        try:
            for _ in range(PASSES):
                # If the broker dies, the others lead at once, and the moves that follow end these.
                self._executor.execute(plan.leaders, layout, "leaders moved", waits_for_dead=False)
                self._leaders += len(plan.leaders)
                self._executor.execute(plan.moves, layout, "replicas moved")
                # Partitions that were made meanwhile may have replicas on the brokers, too.
                layout = read_layout(self._cluster)
                plan = _plan(self._cluster, layout, state.brokers)
                if not plan.moves:
                    break
                state = self._kept(state, layout, plan)
            else:
                raise CommandError(
                    f"{_names(state.brokers)} got new replicas again and again: run the command "
                    "again when nobody moves replicas there"
                )
        except KeyboardInterrupt:
            self._tell_interrupted()
            raise
        if state.is_throttled:
            self._executor.end_throttle(state.plan)
        write_state(self._path, replace(state, phase=Phase.COMPLETED, is_throttled=False))
        self._report(state)

    def _kept(self, state: PlanState, layout: Layout, plan: DrainPlan) -> PlanState:
        """Write the state before a change: what was kept of a partition first, stays."""
        before = {tp: layout.partitions[tp].replicas for tp in plan.moves}
        state = replace(
            state,
            plan={**state.plan, **plan.moves},
            before={**before, **state.before},
            is_throttled=state.is_throttled or self._args.throttle is not None,
        )
        write_state(self._path, state)
        return state

    def _tell_interrupted(self) -> None:
        self._executor.progress.keep(
            "ended before the drain was: brokers end the moves that have begun, and "
            f"{self._args.target} stays cordoned. The same command goes on; with --undo it takes "
            f"back what was done (state: {self._path})"
        )

    def _report(self, state: PlanState) -> None:
        if self._args.json:
            print_json(
                {
                    "brokers": list(state.brokers),
                    "not_cordoned": self._dead,
                    "leaders_moved": self._leaders,
                    "bytes_copied": self._executor.bytes_copied,
                    "state_file": str(self._path),
                    **plan_document(state.plan),
                }
            )
            return
        cordoned = "drained" if self._dead else "drained and cordoned"
        write_line(
            f"{_names(state.brokers)}: {cordoned}, {len(state.plan)} partitions moved; "
            f"take it back with: headrace drain --undo --state {self._path}"
        )
        if self._dead:
            write_line(
                f"{_names(self._dead)}: dead, and so not cordoned; if it is started again, "
                "'headrace cordon' keeps new replicas away"
            )


def _undo(cluster: Cluster, args: argparse.Namespace, path: Path) -> None:
    state = read_state(path, cluster.metadata([]).cluster_id, _ACTION)
    if state is None:
        raise CommandError(
            f"there is no {path}: --undo needs the file that 'headrace drain' has written; name it "
            "with --state"
        )
    moved = undo(cluster, path, state, executor_of(cluster, args))
    if args.json:
        print_json(_undone(state.brokers, state.before, moved, path))
        return
    write_line(f"{_names(state.brokers)}: as before, {moved} partitions moved back")


def _undone(
    brokers: Sequence[int],
    before: Mapping[TopicPartition, Sequence[int]],
    moved: int,
    path: Path,
) -> Document:
    return {
        "brokers": list(brokers),
        "moved_back": moved,
        "state_file": str(path),
        **plan_document(before),
    }
