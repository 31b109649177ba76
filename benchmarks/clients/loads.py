"""The clients' work in a round, and the rows of the table that result from it.

Rule: a row is one figure of a piece of work, by its name; both sides do the same work.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.support.rounds import Goal

REQUESTS, LIBRDKAFKA, JAVA = "requests", "librdkafka", "java"
GROUPS = (REQUESTS, LIBRDKAFKA, JAVA)
"""The groups of rows that can be requested; the last two are clients."""

PARTITIONS = 6
RATES = (100, 500, 1_000)
"""Records a second, each sent in a request of its own."""
VALUE_BYTES = (100, 1_000)
GIGABYTE = 1e9

_LATENCY = Goal(most=0.7)
_RATE = Goal(least=2)
_PROCESSOR = Goal(most=0.4)

Figures = Mapping[str, float]
"""The figures of a piece of work, by the names of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLoad:
    """Records that a producer sends as fast as it can."""

    name: str
    value_bytes: int
    records: int
    settings: Mapping[str, str]
    """The producer's settings, beside acks=all."""

    @property
    def bytes(self) -> int:
        return self.records * self.value_bytes


_LARGE_BATCHES = {
    LIBRDKAFKA: {"linger.ms": "20", "batch.size": "1000000"},
    JAVA: {"linger.ms": "5", "batch.size": "131072", "buffer.memory": "134217728"},
}
_DEFAULTS = {
    # Its queue would be full at 100,000 records, which the loop would wait for.
    LIBRDKAFKA: {"queue.buffering.max.messages": "1000000"},
    JAVA: {},
}


def loads_of(client: str, rows: int) -> list[ProducerLoad]:
    """Return a client's loads. `rows`: of the smaller values; all loads have as many bytes."""
    return [
        ProducerLoad(
            name=f"{client}-{value_bytes}-{kind}",
            value_bytes=value_bytes,
            records=max(1, rows * VALUE_BYTES[0] // value_bytes),
            settings={**_DEFAULTS[client], **settings},
        )
        for value_bytes in VALUE_BYTES
        for kind, settings in (("defaults", {}), ("large-batches", _LARGE_BATCHES[client]))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRow:
    """A row of the table."""

    name: str
    group: str
    what: str
    goal: Goal | None = None
    """The goal for the ratio of Headrace's figure to Apache Kafka's."""


def latency_name(rate: int, figure: str) -> str:
    return f"requests-{rate}-{figure}"


def _rows() -> list[ClientRow]:
    rows = []
    for rate in RATES:
        figures = (
            ("ack-p50", "acknowledged, p50, ms", _LATENCY),
            ("ack-p99", "acknowledged, p99, ms", _LATENCY),
            ("read-p50", "read by a consumer, p50, ms", _LATENCY),
            ("read-p99", "read by a consumer, p99, ms", _LATENCY),
            ("cpu", "processor time of the brokers, us a record", None),
        )
        for figure, what, goal in figures:
            text = f"one record a request, {rate:,}/s, {what}"
            name = latency_name(rate, figure)
            rows.append(ClientRow(name=name, group=REQUESTS, what=text, goal=goal))
    for client, called in ((LIBRDKAFKA, "librdkafka"), (JAVA, "Java")):
        for load in loads_of(client, 1):
            batches = "large batches" if load.name.endswith("large-batches") else "defaults"
            text = f"{called} produces {load.value_bytes:,} B, {batches}, records/s"
            rows.append(ClientRow(name=load.name, group=client, what=text, goal=_RATE))
        text = f"{called} consumes all of it, records/s"
        rows.append(ClientRow(name=f"{client}-consume", group=client, what=text))
        text = f"processor time of the brokers for both, {called}, s a GB"
        rows.append(ClientRow(name=f"{client}-cpu", group=client, what=text, goal=_PROCESSOR))
    return rows


ROWS = tuple(_rows())
