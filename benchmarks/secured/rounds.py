"""Brings the brokers up that are asked for, measures, and stops them.

Rule: all of a comparison are up all the time, so that each runs beside the same idle others.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.secured.brokers import Place, headrace, kafka
from benchmarks.secured.figures import Figure
from benchmarks.secured.quotas import QuotaRounds
from benchmarks.secured.rates import Rates, allow
from benchmarks.support.wire_load import Worker
from storage_engine.tools.table import report_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured, and where."""

    folder: Path
    parts: Sequence[str]
    bytes: int
    requests: int
    rounds: int
    seconds: int
    kafka: Path | None
    """The folder of its jars; None leaves it out."""


def with_brokers(plan: Plan) -> list[Figure]:
    """The figures of all parts that need a broker."""
    place = Place.made(plan.folder)
    found: list[Figure] = []
    with contextlib.ExitStack() as stack:
        # Workers end when nobody listens to them any more, also when we are killed.
        worker, other = stack.enter_context(Worker()), stack.enter_context(Worker())
        report_line("starting a broker with access rules")
        secured = stack.enter_context(headrace(place, "headrace", is_secured=True))
        allow(secured)
        rates = Rates(worker, plan.folder, (plan.bytes, plan.requests), plan.rounds)
        if "small" in plan.parts:
            with headrace(place, "open", is_secured=False) as opened:
                found += rates.logged_in(opened, secured)
        if "tls" in plan.parts:
            with contextlib.ExitStack() as theirs:
                brokers = [secured]
                if plan.kafka is not None:
                    report_line("starting Apache Kafka")
                    brokers.append(theirs.enter_context(kafka(place, plan.kafka)))
                    allow(brokers[-1])
                found += rates.through_tls(brokers)
        if "quotas" in plan.parts:
            found += QuotaRounds(worker, other, secured, plan.seconds).figures()
    return found
