"""How exactly quotas hold, and what a client under a quota costs other clients.

The client with a quota logs in and sends one request after the other without a pause, so that only
the broker holds it back. A broker lets a client that was idle send a second's worth of bytes at
once; these bytes count, too.
"""

import contextlib
import statistics
from collections.abc import Iterator

from benchmarks.beside_kafka.processor_time import seconds_of
from benchmarks.secured.brokers import LOGGED_IN, OPEN, Broker
from benchmarks.secured.topics import READ_TOPIC, WRITTEN, create_topic
from benchmarks.support import wire_load
from benchmarks.support.rounds import Figure, Goal, judged, percentile, plain_spread, rounded
from benchmarks.support.wire_frames import ProduceFrames, produce_frames
from benchmarks.support.wire_load import Worker
from storage_engine.core.quotas import QuotaEntity, QuotaKey
from storage_engine.tools.table import report_line

BOUND = 2_000_000
"""The quota in bytes a second, for either direction."""
PERCENT = 10.0

HELD_GOAL = Goal(least=0.9, most=1.1)
OTHERS_GOAL = Goal(most=1.1)

_BATCH_BYTES = 32 * 1024
_SMALL_BYTES = 1024
_RING = 64
_FILLED = 256
"""Batches that the consumer reads over and over."""
_TURNS = 3
_WARM_UP_S = 1.0
_PAUSE_S = 0.002
"""The pause between two requests of the client without a quota."""


class QuotaRounds:
    """`held` runs the client with a quota, `other` the one without."""

    def __init__(self, held: Worker, other: Worker, broker: Broker, seconds: int) -> None:
        self._held = held
        self._other = other
        self._broker = broker
        self._seconds = float(seconds)
        self._topic = f"{WRITTEN}-held"
        self._read_topic = f"{READ_TOPIC}-held"
        self._other_topic = f"{WRITTEN}-other"
        self._client = broker.listeners[LOGGED_IN]

    def figures(self) -> list[Figure]:
        """Measure each quota by itself."""
        for topic in (self._topic, self._other_topic, self._read_topic):
            create_topic(self._broker, topic)
        frames = produce_frames(self._read_topic, _BATCH_BYTES, _RING, seed=1)
        opened = self._broker.listeners[OPEN]
        self._held.run(wire_load.produce, opened, frames, 1, 4, _FILLED)
        return [
            self._produced(),
            self._consumed(frames.records_per_batch),
            self._share_of_processor(),
            *self._noticed_by_others(),
        ]

    def _produced(self) -> Figure:
        with self._quota(QuotaKey.PRODUCED, BOUND):
            frames = self._frames(_BATCH_BYTES)
            load = self._client, frames, self._seconds
            seconds, requests = self._held.run(wire_load.produce_for, *load)
        size = len(requests) * frames.request_bytes
        return _held_figure(f"{QuotaKey.PRODUCED.value}, MB/s", size / seconds)

    def _consumed(self, step: int) -> Figure:
        load_of_it = (self._read_topic, _BATCH_BYTES, step, _FILLED, self._seconds)
        with self._quota(QuotaKey.CONSUMED, BOUND):
            size, seconds = self._held.run(wire_load.fetch_for, self._client, *load_of_it)
        return _held_figure(f"{QuotaKey.CONSUMED.value}, MB/s", size / seconds)

    def _share_of_processor(self) -> Figure:
        """Measure the processor share of the whole process, which does more than serve requests."""
        shares = []
        for bound in (None, PERCENT):
            with self._quota(QuotaKey.REQUESTS, bound):
                before_s = seconds_of([self._broker.pid])
                load = self._client, self._frames(_SMALL_BYTES), self._seconds
                seconds, _ = self._held.run(wire_load.produce_for, *load)
                shares.append((seconds_of([self._broker.pid]) - before_s) / seconds * 100)
        free, bounded = shares
        return Figure(
            what=f"{QuotaKey.REQUESTS.value}={PERCENT:g}: percent of a processor that the broker"
            " takes; limit: without the quota",
            measured=rounded(bounded),
            limit=rounded(free),
            ratio=rounded(bounded / free),
        )

    def _noticed_by_others(self) -> list[Figure]:
        """Measure another client alone, beside one with a quota, and beside the same without it."""
        found: dict[str, list[list[float]]] = {"alone": [], "held": [], "free": []}
        kinds = list(found)
        for turn in range(_TURNS):
            for kind in kinds[turn:] + kinds[:turn]:
                found[kind].append(self._latencies(kind))
                report_line(f"another client, {kind}: p99 {_p99(found[kind][-1]):.2f} ms")
        return [
            _others_figure("beside a client that is held to its quota", found["held"],
                           found["alone"], OTHERS_GOAL),
            _others_figure("beside the same client without a quota", found["free"], found["alone"],
                           None),
        ]  # fmt: skip

    def _latencies(self, kind: str) -> list[float]:
        seconds = max(1.0, self._seconds / _TURNS)
        small = produce_frames(self._other_topic, _SMALL_BYTES, _RING, seed=1)
        asked = self._broker.listeners[OPEN], small, seconds, _PAUSE_S
        if kind == "alone":
            return self._other.run(wire_load.produce_for, *asked)[1]
        with self._quota(QuotaKey.PRODUCED, BOUND if kind == "held" else None):
            load = self._client, self._frames(_BATCH_BYTES), seconds + _WARM_UP_S
            self._held.begin(wire_load.produce_for, *load)
            _, times = self._other.run(wire_load.produce_for, *asked)
            self._held.result()
        return times

    def _frames(self, batch_bytes: int) -> ProduceFrames:
        return produce_frames(self._topic, batch_bytes, _RING, seed=1)

    @contextlib.contextmanager
    def _quota(self, key: QuotaKey, bound: float | None) -> Iterator[None]:
        """Set the quota within the block; None: set none."""
        if bound is None:
            yield
            return
        entity = QuotaEntity(user=wire_load.USER)
        with self._broker.admin as admin:
            admin.alter_client_quotas(entity, {key.value: bound})
            # The broker that answers is the one that has it in force.
            assert any(each.entity == entity for each in admin.describe_client_quotas())
        yield
        with self._broker.admin as admin:
            admin.alter_client_quotas(entity, {}, remove=[key.value])


def _held_figure(what: str, rate: float) -> Figure:
    ratio = rounded(rate / BOUND)
    return Figure(
        what=what,
        measured=rounded(rate / 1e6),
        limit=BOUND / 1e6,
        ratio=ratio,
        **judged(HELD_GOAL, ratio),
    )


def _others_figure(
    what: str, beside: list[list[float]], alone: list[list[float]], goal: Goal | None
) -> Figure:
    """Return the median of the turns: a turn that another program disturbs counts no more."""
    measured, limit = (statistics.median(map(_p99, each)) for each in (beside, alone))
    ratios = [_p99(one) / _p99(other) for one, other in zip(beside, alone, strict=True)]
    ratio = rounded(measured / limit)
    return Figure(
        what=f"another client, {what}: p99, ms; limit: alone",
        measured=rounded(measured),
        limit=rounded(limit),
        ratio=ratio,
        spread=plain_spread(ratios),
        **judged(goal, ratio),
    )


def _p99(times: list[float]) -> float:
    return percentile(times, 99)
