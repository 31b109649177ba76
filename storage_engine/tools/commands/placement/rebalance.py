"""Even out the load of brokers and machines: show what would move, and move it with --apply.

The plan moves as little as brings every broker within the tolerance of the mean: replicas to
brokers below it, then preferred leaders between the replicas of their partitions, which moves no
data. Replicas of a partition stay on machines and racks of their own, cordoned brokers get none,
and no load that counts is made worse for another.

loads:
  replicas  number of replicas
  bytes     size of the logs on the disks
  leaders   number of partitions whose preferred leader the broker is
  rates     bytes a second that producers write, which are measured for --sample seconds

With --apply the command waits for the end. It may be ended at any time, also by a kill: the same
command goes on with its plan. --undo moves back what was moved.

examples:
  headrace rebalance --bootstrap-server 127.0.0.1:9092
  headrace rebalance --bootstrap-server 127.0.0.1:9092 --by replicas,rates --tolerance 5
  headrace rebalance --bootstrap-server 127.0.0.1:9092 --apply --throttle 50000000
  headrace rebalance --bootstrap-server 127.0.0.1:9092 --undo
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from storage_engine.client.cluster import Cluster
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.arguments import positive_seconds
from storage_engine.tools.client_settings import connect
from storage_engine.tools.document import Document
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.placement.cluster_layout import read_layout, with_rates
from storage_engine.tools.placement.layout import Layout, own_machine
from storage_engine.tools.placement.loads import Load, Loads, loads
from storage_engine.tools.placement.options import add_connection, add_execution, executor_of
from storage_engine.tools.placement.plan_state import (
    Phase,
    PlanState,
    held,
    read_state,
    write_state,
)
from storage_engine.tools.placement.reassign_plan import plan_document
from storage_engine.tools.placement.rebalance_plan import plan_rebalance
from storage_engine.tools.placement.undo import undo
from storage_engine.tools.placement.waves import bytes_copied, new_replicas
from storage_engine.tools.table import print_json, print_table, write_line

_ACTION = "rebalance"
_STATE = "headrace-rebalance.json"
_DEFAULT_BY = "replicas,bytes,leaders"
_TOLERANCE = 10.0
_SAMPLE_S = 10.0
_MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace rebalance`."""
    parser.add_argument(
        "--by",
        type=_loads_named,
        default=_DEFAULT_BY,
        metavar="LOADS",
        help=f"loads to even out, of {', '.join(Load)} (default {_DEFAULT_BY})",
    )
    parser.add_argument(
        "--tolerance",
        type=_percent,
        default=_TOLERANCE,
        metavar="PERCENT",
        help="how far a broker may be from the mean; a replica or leader more or less is always "
        f"near enough (default {_TOLERANCE:.0f})",
    )
    parser.add_argument(
        "--sample",
        type=positive_seconds,
        default=_SAMPLE_S,
        metavar="SECONDS",
        help=f"time for which rates are measured (default {_SAMPLE_S:.0f})",
    )
    parser.add_argument("--apply", action="store_true", help="carry the plan out, and wait for it")
    add_execution(parser, _STATE)
    add_connection(parser)


def _loads_named(text: str) -> tuple[Load, ...]:
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in list(Load):
            raise argparse.ArgumentTypeError(
                f"there is no load '{name}'; there are {', '.join(Load)}"
            )
    return tuple(dict.fromkeys(map(Load, names)))


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of percent from 0 to 100")
    return value


def run(args: argparse.Namespace) -> int:
    """Run `headrace rebalance`."""
    if args.undo and args.apply:
        raise UsageError("--undo and --apply do not go together")
    path = args.state or Path(_STATE)
    with connect(args.bootstrap_server, args.command_config) as cluster:
        if args.undo:
            with held(path):
                _undo(cluster, args, path)
        elif args.apply:
            with held(path):
                _apply(cluster, args, path)
        else:
            layout, plan = _proposed(cluster, args)
            _show(layout, plan, args)
    return 0


Target = tuple[int, ...]


def _proposed(
    cluster: Cluster, args: argparse.Namespace
) -> tuple[Layout, dict[TopicPartition, Target]]:
    layout = read_layout(cluster)
    if Load.RATES in args.by:
        layout = with_rates(cluster, layout, args.sample)
    return layout, plan_rebalance(layout, args.by, args.tolerance / 100)


# --- what is shown ---


def _show(layout: Layout, plan: Mapping[TopicPartition, Target], args: argparse.Namespace) -> None:
    before, after = loads(layout, {}), loads(layout, plan)
    copied = sum(bytes_copied(layout, plan).values())
    moved = sum(new_replicas(layout.partitions[tp].replicas, plan[tp]) for tp in plan)
    if args.json:
        print_json(
            {
                **plan_document(plan),
                "replicas_moved": moved,
                "bytes_copied": copied,
                "brokers": _rows(layout, before, after, args.by, by_machine=False),
                "machines": _rows(layout, before, after, args.by, by_machine=True),
            }
        )
        return
    _print_loads("broker", _rows(layout, before, after, args.by, by_machine=False), args.by)
    if any(place.machine != own_machine(b) for b, place in layout.brokers.items()):
        write_line("")
        _print_loads("machine", _rows(layout, before, after, args.by, by_machine=True), args.by)
    write_line("")
    if not plan:
        write_line("every broker is within the tolerance, or no move would bring it nearer")
        return
    print_table(
        ("topic", "partition", "replicas", "target"),
        [
            (tp.topic, tp.partition, list(layout.partitions[tp].replicas), list(target))
            for tp, target in plan.items()
        ],
    )
    write_line("")
    write_line(
        f"{len(plan)} partitions: {moved} replicas move, {copied / _MIB:,.1f} MiB are copied; "
        f"{'they move now' if args.apply else '--apply moves them'}"
    )


def _rows(
    layout: Layout, before: Loads, after: Loads, by: tuple[Load, ...], *, by_machine: bool
) -> list[Document]:
    sums: dict[int | str, dict[str, float]] = {}
    for broker in sorted(before):
        name: int | str = layout.place(broker).machine if by_machine else broker
        found = sums.setdefault(name, dict.fromkeys((f"{x}{y}" for x in by for y in _WHEN), 0.0))
        for load in by:
            for when, of_all in zip(_WHEN, (before, after), strict=True):
                found[f"{load}{when}"] += of_all[broker][load]
    key = "machine" if by_machine else "broker"
    return [{key: name, **{k: round(v) for k, v in found.items()}} for name, found in sums.items()]


_WHEN = ("_before", "_after")


def _print_loads(key: str, rows: list[Document], by: tuple[Load, ...]) -> None:
    columns = [key, *(f"{load} {when}" for load in by for when in ("before", "after"))]
    print_table(columns, [list(row.values()) for row in rows])


# --- what is done ---


def _apply(cluster: Cluster, args: argparse.Namespace, path: Path) -> None:
    cluster_id = cluster.metadata([]).cluster_id
    state = read_state(path, cluster_id, _ACTION)
    if state is not None and state.phase is Phase.UNDOING:
        raise CommandError(
            f"'headrace rebalance --undo' has not ended yet: run it again with --state {path}"
        )
    if state is not None and state.phase is Phase.UNDER_WAY:
        layout = read_layout(cluster)
    else:
        layout, plan = _proposed(cluster, args)
        if not args.json:
            _show(layout, plan, args)
        if not plan:
            if args.json:
                _show(layout, plan, args)
            return
        state = PlanState(
            action=_ACTION,
            cluster_id=str(cluster_id),
            phase=Phase.UNDER_WAY,
            plan=plan,
            before={tp: layout.partitions[tp].replicas for tp in plan},
            cordons={},
        )
    _carry_out(cluster, args, path, state, layout)


def _carry_out(
    cluster: Cluster, args: argparse.Namespace, path: Path, state: PlanState, layout: Layout
) -> None:
    executor = executor_of(cluster, args)
    left = {
        tp: tuple(target)
        for tp, target in state.plan.items()
        if (now := layout.partitions.get(tp)) is not None
        and (now.target is not None or now.replicas != tuple(target))
    }
    if state.is_throttled and args.throttle is None:
        # Of a run that was ended.
        executor.end_throttle(state.plan)
    state = replace(state, is_throttled=args.throttle is not None)
    write_state(path, state)
    try:
        executor.execute(left, layout, "moved")
        executor.elect({tp: t for tp, t in state.plan.items() if tp in layout.partitions})
    except KeyboardInterrupt:
        executor.progress.keep(
            "ended before all was moved: brokers end the moves that have begun. The same command "
            f"goes on; with --undo it takes back what was done (state: {path})"
        )
        raise
    if state.is_throttled:
        executor.end_throttle(state.plan)
    write_state(path, replace(state, phase=Phase.COMPLETED, is_throttled=False))
    if args.json:
        print_json(
            {
                **plan_document(state.plan),
                "bytes_copied": executor.bytes_copied,
                "state_file": str(path),
            }
        )
        return
    write_line(
        f"{len(state.plan)} partitions moved; take it back with: headrace rebalance --undo "
        f"--state {path}"
    )


def _undo(cluster: Cluster, args: argparse.Namespace, path: Path) -> None:
    state = read_state(path, cluster.metadata([]).cluster_id, _ACTION)
    if state is None:
        raise CommandError(
            f"there is no {path}: --undo needs the file that 'headrace rebalance --apply' has "
            "written; name it with --state"
        )
    moved = undo(cluster, path, state, executor_of(cluster, args))
    if args.json:
        print_json({"moved_back": moved, "state_file": str(path), **plan_document(state.before)})
        return
    write_line(f"{moved} partitions moved back")
