"""Takes back what a plan has done: cancels what is under way, and moves back what was moved."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from storage_engine.client.cluster import Cluster
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.errors import CommandError
from storage_engine.tools.placement.cluster_layout import read_layout
from storage_engine.tools.placement.cordons import set_cordons
from storage_engine.tools.placement.executor import Executor
from storage_engine.tools.placement.layout import Layout
from storage_engine.tools.placement.plan_state import Phase, PlanState, write_state

PASSES = 5
"""How often replicas that another command has moved meanwhile are looked for."""


def undo(cluster: Cluster, path: Path, state: PlanState, executor: Executor) -> int:
    """Returns the number of partitions that were moved back. CommandError, and nothing is changed,
    where a replica would go back to a broker that is dead, or that somebody else has cordoned.
    Killed in the middle it goes on when it is called again."""
    layout = read_layout(cluster)
    _check_takers(layout, state)
    write_state(path, replace(state, phase=Phase.UNDOING, is_throttled=True))
    # Also of brokers that were cordoned before: nothing may be moved to one that is.
    set_cordons(cluster, dict.fromkeys(_alive(cluster, state.cordons)))
    executor.cancel(state.before.keys())
    moved = 0
    for _ in range(PASSES):
        layout = read_layout(cluster)
        plan = _back(layout, state)
        if not plan:
            break
        executor.execute(plan, layout, "moved back")
        moved += len(plan)
    else:
        raise CommandError(
            "partitions are still moved by another command: end it, and run this again"
        )
    there = {tp: tuple(b) for tp, b in state.before.items() if tp in layout.partitions}
    executor.elect(there)
    executor.end_throttle(state.plan)
    set_cordons(cluster, {b: state.cordons[b] for b in _alive(cluster, state.cordons)})
    write_state(path, replace(state, phase=Phase.UNDONE, is_throttled=False))
    return moved


def _back(layout: Layout, state: PlanState) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas before, of the partitions that have others or are about to."""
    return {
        tp: tuple(before)
        for tp, before in sorted(state.before.items())
        if (now := layout.partitions.get(tp)) is not None
        and (now.target is not None or now.replicas != tuple(before))
    }


def _check_takers(layout: Layout, state: PlanState) -> None:
    back = _back(layout, state)
    unfit = sorted(
        {
            broker
            for tp, replicas in back.items()
            for broker in replicas
            if broker not in layout.partitions[tp].replicas
            and not _can_take(layout, broker, state.cordons)
        }
    )
    if unfit:
        raise CommandError(
            f"nothing was changed: replicas would go back to {_brokers(unfit)}, which can't take "
            "them: start those that are dead, and uncordon the others"
        )


def _can_take(layout: Layout, broker: int, cordons: Collection[int]) -> bool:
    """`cordons`: brokers whose cordon is taken back first."""
    place = layout.place(broker)
    return place.is_alive and (not place.is_cordoned or broker in cordons)


def _alive(cluster: Cluster, brokers: Iterable[int]) -> list[int]:
    there = cluster.metadata([]).brokers
    return [broker for broker in brokers if broker in there]


def _brokers(brokers: Sequence[int]) -> str:
    return f"broker{'s' * (len(brokers) > 1)} {', '.join(map(str, brokers))}"
