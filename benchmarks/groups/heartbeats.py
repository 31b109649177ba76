"""Thousands of members that send heartbeats: the coordinator's processor time."""

import argparse
import asyncio
import time

from benchmarks.groups.brokers import TOPIC, Coordinator, Sides
from benchmarks.groups.crowd import CONSUMER, Crowd
from benchmarks.groups.fetches import Ownership, Pauses
from benchmarks.groups.members import ConsumerGroupMember, Watched
from benchmarks.groups.results import STEADY, Figures
from benchmarks.support.rounds import percentile
from storage_engine.tools.table import report_line

_JOINED_S = 600.0
_SETTLE_S = 15.0
"""Three intervals: the last reconciliations are over."""


def measure(sides: Sides, side: str, args: argparse.Namespace) -> Figures:
    """Return the figures of one side."""
    with sides.running(side, {}) as broker:
        broker.create(args.partitions)
        return asyncio.run(_measured(broker, args))


async def _measured(broker: Coordinator, args: argparse.Namespace) -> Figures:
    ownership, pauses = Ownership(args.partitions), Pauses(args.partitions)
    watched = Watched("heartbeats", TOPIC, args.partitions, ownership, pauses)
    async with Crowd(broker.address, watched, CONSUMER, fetches=False) as crowd:
        begun_s, begun_cpu_s = time.monotonic(), broker.cpu_s()
        await crowd.start_many(args.many)
        members = [
            each.member for each in crowd.running if isinstance(each.member, ConsumerGroupMember)
        ]
        await crowd.wait_until(
            lambda: all(each.beats_s for each in members), "a group with all members", _JOINED_S
        )
        shares = min(args.many, args.partitions)
        await crowd.wait_until(lambda: ownership.is_shared_by(shares), "a shared topic", _JOINED_S)
        joined_s, joined_cpu_s = time.monotonic() - begun_s, broker.cpu_s() - begun_cpu_s
        report_line(f"{broker.side}: {args.many} members share after {joined_s:.1f} s")
        await crowd.stay(_SETTLE_S)
        for each in members:
            each.beats_s.clear()
        begun_s, begun_cpu_s = time.monotonic(), broker.cpu_s()
        await crowd.stay(args.seconds)
        passed_s, cpu_s = time.monotonic() - begun_s, broker.cpu_s() - begun_cpu_s
        beats_s = [beat_s for each in members for beat_s in each.beats_s]
    return {
        f"{args.many:,} members join and share, s": joined_s,
        "the same: processor time, s": joined_cpu_s,
        STEADY: 100 * cpu_s / passed_s,
        "heartbeats a second": len(beats_s) / passed_s,
        "processor time of a heartbeat, µs": 1e6 * cpu_s / max(1, len(beats_s)),
        "a heartbeat takes, p50, ms": 1000 * percentile(beats_s, 50),
        "a heartbeat takes, p99, ms": 1000 * percentile(beats_s, 99),
    }
