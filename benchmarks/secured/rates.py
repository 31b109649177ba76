"""Large produces and fetches through TLS beside plain ones, for Headrace and for Apache Kafka, and
small requests of clients that have logged in beside small requests to an open broker.

All sides are up all the time and take turns, each first in as many rounds as the others, so that
other load on the machine weighs on all of them.
"""

import argparse
import contextlib
import socket
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.beside_kafka.processor_time import seconds_of
from benchmarks.secured.brokers import (
    ENCRYPTED,
    LOGGED_IN,
    OPEN,
    Broker,
    Place,
    headrace,
    kafka,
)
from benchmarks.secured.quotas import QuotaRounds
from benchmarks.secured.topics import READ_TOPIC, WRITTEN, allow, create_topic
from benchmarks.support import wire_load
from benchmarks.support.rounds import Figure, Goal, judged, plain_spread, ratios_of, rounded
from benchmarks.support.wire_frames import produce_frames
from benchmarks.support.wire_load import Args, Worker
from storage_engine.tools.table import report_line

BATCH_BYTES = 128 * 1024
FETCH_BYTES = 1 << 20
SMALL_BYTES = 1024
CONNECTIONS, IN_FLIGHT = 4, 4
FETCHES_IN_FLIGHT = 2
SMALL_IN_FLIGHT = 32
ONE_BY_ONE_PART = 10
"""The divisor of the small requests in rounds in which each waits for the one before."""

TLS_GOAL = Goal(least=0.6)
"""The goal, unless the ratio of Apache Kafka in the same run is lower."""
LOGGED_IN_GOAL = Goal(least=0.95)

_RING, _SMALL_RING = 64, 256
_WARM_UP = 3
"""The rounds to warm up: a JVM compiles frequent code."""


class Round(NamedTuple):
    """The figures of one side in its turn."""

    rate: float
    broker_s: float
    """The broker's processor time for a unit of work."""


Turn = Callable[[], Round]


def with_brokers(folder: Path, parts: Sequence[str], args: argparse.Namespace) -> list[Figure]:
    """Return the figures of all parts that need a broker. All sides of a comparison run all the
    time, so that each is measured beside the same idle others."""
    place = Place.made(folder)
    found: list[Figure] = []
    with contextlib.ExitStack() as stack:
        # Workers end when nobody listens to them any more, also when this process is killed.
        worker, other = stack.enter_context(Worker()), stack.enter_context(Worker())
        report_line("starting a broker with access rules")
        secured = stack.enter_context(headrace(place, "headrace", is_secured=True))
        allow(secured)
        rates = Rates(worker, folder, (args.bytes, args.requests), args.rounds)
        if "small" in parts:
            with headrace(place, "open", is_secured=False) as opened:
                found += rates.logged_in(opened, secured)
        if "tls" in parts:
            with contextlib.ExitStack() as theirs:
                brokers = [secured]
                if not args.without_kafka:
                    report_line("starting Apache Kafka")
                    brokers.append(theirs.enter_context(kafka(place, args.folder)))
                    allow(brokers[-1])
                found += rates.through_tls(brokers)
        if "quotas" in parts:
            found += QuotaRounds(worker, other, secured, args.seconds).figures()
    return found


class Rates:
    """Measures all sides. `sizes`: the bytes of a round with large requests, and the requests of a
    round with small ones."""

    def __init__(self, worker: Worker, folder: Path, sizes: tuple[int, int], rounds: int) -> None:
        self._worker = worker
        self._folder = folder
        self._bytes, self._small_requests = sizes
        self._rounds = rounds
        self._topics = 0

    def through_tls(self, brokers: Sequence[Broker]) -> list[Figure]:
        """Measure produce and fetch of each broker; the last ratio is enough for the others."""
        found = self._compared("produce", self._producing, brokers)
        frames = produce_frames(READ_TOPIC, BATCH_BYTES, _RING, seed=1)
        for broker in brokers:
            create_topic(broker, READ_TOPIC)
            requests = max(1, self._bytes // BATCH_BYTES)
            self._worker.run(
                wire_load.produce, broker.listeners[OPEN], frames, 1, IN_FLIGHT, requests
            )
        found += self._compared("fetch", self._fetching, brokers)
        return found

    def logged_in(self, opened: Broker, secured: Broker) -> list[Figure]:
        """Measure small requests by SASL_PLAINTEXT under access rules, beside an open broker."""
        figures = []
        for in_flight, requests, how in (
            (SMALL_IN_FLIGHT, self._small_requests, f"{SMALL_IN_FLIGHT} in flight"),
            (1, max(1, self._small_requests // ONE_BY_ONE_PART), "one by one"),
        ):
            turns = {
                "open": self._small(opened, OPEN, in_flight, requests),
                "logged in": self._small(secured, LOGGED_IN, in_flight, requests),
            }
            rounds = self._by_turns(f"1 KiB, {how}", turns)
            what = f"produce of 1 KiB, {how}: logged in beside open, requests/s"
            figures.append(figure_of(what, rounds, "logged in", "open", goal=LOGGED_IN_GOAL))
        return figures

    def _compared(
        self, what: str, turn: Callable[[Broker, str], Turn], brokers: Sequence[Broker]
    ) -> list[Figure]:
        turns = {
            f"{broker.name} {listener}": turn(broker, listener)
            for broker in brokers
            for listener in (OPEN, ENCRYPTED)
        }
        rounds = self._by_turns(what, turns)
        theirs = None
        figures: list[Figure] = []
        for broker in reversed(brokers):
            what_of = f"{what}, {broker.name}: SASL_SSL beside PLAINTEXT, MB/s"
            measured, limit = f"{broker.name} {ENCRYPTED}", f"{broker.name} {OPEN}"
            goal = TLS_GOAL if broker is brokers[0] else None
            figure = figure_of(what_of, rounds, measured, limit, goal=goal, least=theirs)
            theirs = figure.ratio
            figures.insert(0, figure)
        return figures

    def _by_turns(self, what: str, turns: dict[str, Turn]) -> dict[str, list[Round]]:
        """Run some rounds to warm up, then the requested ones; the first side rotates."""
        found: dict[str, list[Round]] = {name: [] for name in turns}
        names = list(turns)
        for number in range(1 - _WARM_UP, self._rounds + 1):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                each = turns[name]()
                if number > 0:
                    found[name].append(each)
                when = f"round {number}" if number > 0 else "to warm up"
                report_line(f"{what}, {name}, {when}: {each.rate:,.0f}")
        return found

    def _producing(self, broker: Broker, listener: str) -> Turn:
        requests = max(1, self._bytes // BATCH_BYTES // CONNECTIONS)
        size = requests * CONNECTIONS * BATCH_BYTES

        def turn() -> Round:
            self._worker.run(wire_load.touch_memory, self._folder, size)
            with self._new_topic(broker) as topic:
                frames = produce_frames(topic, BATCH_BYTES, _RING, seed=1)
                return self._timed(
                    broker, size / 1e6, wire_load.produce,
                    broker.listeners[listener], frames, CONNECTIONS, IN_FLIGHT, requests,
                )  # fmt: skip

        return turn

    def _fetching(self, broker: Broker, listener: str) -> Turn:
        answers = max(1, self._bytes // FETCH_BYTES)
        step = FETCH_BYTES // BATCH_BYTES * _records_per_batch()

        def turn() -> Round:
            return self._timed(
                broker, answers * FETCH_BYTES / 1e6, wire_load.fetch,
                broker.listeners[listener], READ_TOPIC, 1, FETCH_BYTES, step, answers,
                FETCHES_IN_FLIGHT,
            )  # fmt: skip

        return turn

    def _small(self, broker: Broker, listener: str, in_flight: int, requests: int) -> Turn:
        endpoint = broker.listeners[listener]

        def turn() -> Round:
            with self._new_topic(broker) as topic:
                frames = produce_frames(topic, SMALL_BYTES, _SMALL_RING, seed=1000)
                asked = (endpoint, frames, 1, in_flight, requests)
                return self._timed(broker, requests, wire_load.produce, *asked)

        return turn

    def _timed(
        self,
        broker: Broker,
        work: float,
        function: Callable[[socket.socket, *Args], float],
        *args: *Args,
    ) -> Round:
        before_s = seconds_of([broker.pid])
        seconds = self._worker.run(function, *args)
        return Round(work / seconds, (seconds_of([broker.pid]) - before_s) / work)

    @contextlib.contextmanager
    def _new_topic(self, broker: Broker) -> Iterator[str]:
        """Have a topic within the block, deleted with its bytes. All names have the same length, as
        have the requests."""
        self._topics += 1
        topic = f"{WRITTEN}-{self._topics:04}"
        create_topic(broker, topic)
        yield topic
        with broker.admin as admin:
            admin.delete_topics([topic])


def _records_per_batch() -> int:
    return produce_frames(READ_TOPIC, BATCH_BYTES, 1, seed=1).records_per_batch


def figure_of(
    what: str,
    rounds: dict[str, list[Round]],
    measured: str,
    limit: str,
    *,
    goal: Goal | None,
    least: float | None = None,
) -> Figure:
    """Return the medians over the rounds. `least`: a ratio that meets the goal, too."""
    pairs = list(zip(rounds[measured], rounds[limit], strict=True))
    ours, theirs = ([each.rate for each in rounds[side]] for side in (measured, limit))
    ratios = ratios_of(ours, theirs)
    ratio = rounded(statistics.median(ratios))
    wanted = judged(goal, ratio)
    if goal is not None and least is not None:
        wanted = {"goal": f"{goal} or {least}", "met": wanted["met"] or ratio >= least}
    return Figure(
        what=what,
        measured=rounded(statistics.median(ours)),
        limit=rounded(statistics.median(theirs)),
        ratio=ratio,
        spread=plain_spread(ratios),
        cpu_ratio=rounded(statistics.median(one.broker_s / other.broker_s for one, other in pairs)),
        **wanted,
    )
