"""One member joins a large group, then one leaves: how long fetches pause, and targets take."""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from benchmarks.beside_kafka.rows import OURS
from benchmarks.groups.brokers import TOPIC, Coordinator, Sides
from benchmarks.groups.classic_assignments import COOPERATIVE, EAGER
from benchmarks.groups.crowd import CONSUMER, Crowd
from benchmarks.groups.fetches import Ownership, Pauses
from benchmarks.groups.members import Watched
from benchmarks.groups.results import ABOVE_QUIET, TARGETS, Figures
from storage_engine.tools.table import report_line

_SHARED_S = 300.0
_PROTOCOLS = {
    CONSUMER: "consumer",
    EAGER: "classic, eager (range)",
    COOPERATIVE: "classic, cooperative",
}


def measure(sides: Sides, side: str, args: argparse.Namespace) -> Figures:
    """Return the figures of one side; ours are of both protocols."""
    found: dict[str, float] = {}
    with sides.running(side, {}) as broker:
        broker.create(args.partitions)
        for protocol in _PROTOCOLS if side == OURS else (CONSUMER,):
            found |= asyncio.run(_measured(broker, protocol, args))
    return found


async def _measured(broker: Coordinator, protocol: str, args: argparse.Namespace) -> Figures:
    ownership, pauses = Ownership(args.partitions), Pauses(args.partitions)
    watched = Watched(f"group-{protocol}", TOPIC, args.partitions, ownership, pauses)
    name = _PROTOCOLS[protocol]
    async with Crowd(broker.address, watched, protocol, fetches=True) as crowd:
        begun_s = time.monotonic()
        await crowd.start_many(args.members)
        await crowd.wait_until(
            lambda: ownership.is_shared_by(args.members), "a group with all members", _SHARED_S
        )
        took_s = ownership.changed_s - begun_s
        report_line(f"{broker.side}, {name}: {args.members} members share after {took_s:.1f} s")
        window = _Window(crowd, args.window)
        await crowd.stay(args.window)
        quiet: list[float] = []
        longest: list[float] = []
        reached: dict[str, list[float]] = {"one joins": [], "one leaves": []}
        for _ in range(args.rounds):
            quiet.append(await window.quiet_s())
            for what, change, members in (
                ("one joins", crowd.start, args.members + 1),
                ("one leaves", crowd.leave, args.members),
            ):
                pause_s, reached_s = await window.changed_s(change, members)
                longest.append(pause_s)
                reached[what].append(reached_s)
    figures = {
        "longest pause in the quiet run, ms": max(quiet),
        "longest pause while one joins or leaves, ms": max(longest),
        ABOVE_QUIET: max(longest) - max(quiet),
        **{f"{what}, {TARGETS}": statistics.median(each) for what, each in reached.items()},
    }
    return {f"{name}: {what}": 1000 * figure for what, figure in figures.items()}


class _Window:
    """Watches the fetches for some seconds."""

    def __init__(self, crowd: Crowd, seconds: float) -> None:
        self._crowd = crowd
        self._seconds = seconds

    async def quiet_s(self) -> float:
        """Return the longest pause when nothing changes."""
        pauses, ownership = self._crowd.watched.pauses, self._crowd.watched.ownership
        pauses.begin(ownership.owners())
        await self._crowd.stay(self._seconds)
        return pauses.longest_s(ownership.owners(), time.monotonic())

    async def changed_s(
        self, change: Callable[[], Awaitable[None]], members: int
    ) -> tuple[float, float]:
        """Change the group, and return the longest pause of partitions that keep their owner, and
        the time until so many members share all."""
        pauses, ownership = self._crowd.watched.pauses, self._crowd.watched.ownership
        pauses.begin(ownership.owners())
        begun_s = time.monotonic()
        await change()
        await self._crowd.wait_until(
            lambda: ownership.changed_s > begun_s and ownership.is_shared_by(members),
            "a group that shares again",
            _SHARED_S,
        )
        # A cooperative group may share evenly before its last generation.
        await self._crowd.stay(max(0.0, begun_s + self._seconds - time.monotonic()))
        pause_s = pauses.longest_s(ownership.owners(), time.monotonic())
        return pause_s, ownership.changed_s - begun_s
