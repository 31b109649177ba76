"""Makes a frame of `headrace top` from two readings of a cluster: rates, and problems in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace_console.top.readings import CONTROLLER, REPLICAS, TOPICS, BrokerReading

SHOWN_MAX = 10
"""The number of topics, groups and sinks that are shown: the largest."""

LONG_TURN_S = 1.0
OLD_TRANSACTION_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLine:
    broker: str
    in_bytes_s: float | None
    out_bytes_s: float | None
    records_s: float | None
    requests_s: float | None
    """Like the other rates: None unless this reading and the one before it succeeded."""
    leaders: int
    replicas: int
    busy: float
    longest_turn_ms: float
    memory_bytes: int
    free_bytes: int
    is_controller: bool
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLine:
    topic: str
    in_bytes_s: float
    out_bytes_s: float
    records_s: float
    size_bytes: int
    """The bytes of all replicas together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLine:
    group: str
    topic: str
    lag: int
    lag_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLine:
    sink: str
    open_members: int
    waiting: int
    last_batch: int | None
    """The highest last batch of the sink's streaming queries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    brokers: list[BrokerLine]
    topics: list[TopicLine]
    groups: list[GroupLine]
    sinks: list[SinkLine]
    problems: list[str]


def frame_of(before: Sequence[BrokerReading], now: Sequence[BrokerReading]) -> Frame:
    """Return a frame. `before`: the reading before `now`; empty for the first."""
    earlier = {reading.name: reading for reading in before if reading.problem is None}
    return Frame(
        brokers=[_broker(earlier.get(reading.name), reading) for reading in now],
        topics=_topics(earlier, now),
        groups=_groups(now),
        sinks=_sinks(now),
        problems=_problems(now),
    )


def _rate(before: BrokerReading | None, now: BrokerReading, metric: str, **labels: str) -> float:
    """Return a counter's rate a second; after a broker's restart, of its count since then."""
    if before is None or now.at_s <= before.at_s:
        return 0.0
    more = now.total(metric, **labels) - before.total(metric, **labels)
    return (more if more >= 0 else now.total(metric, **labels)) / (now.at_s - before.at_s)


def _broker(before: BrokerReading | None, now: BrokerReading) -> BrokerLine:
    requests = "kafka_network_requestmetrics_requests_total"

    def rate(metric: str) -> float | None:
        return None if before is None or now.problem else _rate(before, now, metric)

    fetches = None if before is None else _rate(before, now, requests, request="Fetch")
    all_requests = rate(requests)
    return BrokerLine(
        broker=now.name,
        in_bytes_s=rate(f"{TOPICS}bytesin_total"),
        out_bytes_s=rate(f"{TOPICS}bytesout_total"),
        records_s=rate(f"{TOPICS}messagesin_total"),
        # Fetches are counted again by their kind: of consumers, and of followers.
        requests_s=None if all_requests is None else all_requests - (fetches or 0),
        leaders=int(now.total(f"{REPLICAS}leadercount")),
        replicas=int(now.total(f"{REPLICAS}partitioncount")),
        busy=now.total("headrace_loop_busy_ratio"),
        longest_turn_ms=now.total("headrace_loop_longest_turn_seconds") * 1000,
        memory_bytes=int(now.total("process_resident_memory_bytes")),
        free_bytes=int(min(now.by("headrace_log_dir_free_bytes", "directory").values(), default=0)),
        is_controller=now.total(f"{CONTROLLER}activecontrollercount") > 0,
        problem=now.problem,
    )


def _topics(before: Mapping[str, BrokerReading], now: Sequence[BrokerReading]) -> list[TopicLine]:
    sizes: dict[str, float] = {}
    for reading in now:
        for (topic,), size in reading.by("kafka_log_log_size", "topic").items():
            sizes[topic] = sizes.get(topic, 0) + size
    rates = {
        name: _rates_by_topic(before, now, f"{TOPICS}{name}_total")
        for name in ("bytesin", "bytesout", "messagesin")
    }
    lines = [
        TopicLine(
            topic=topic,
            in_bytes_s=rates["bytesin"].get(topic, 0),
            out_bytes_s=rates["bytesout"].get(topic, 0),
            records_s=rates["messagesin"].get(topic, 0),
            size_bytes=int(size),
        )
        for topic, size in sizes.items()
    ]
    lines.sort(key=lambda line: (-(line.in_bytes_s + line.out_bytes_s), -line.size_bytes))
    return lines[:SHOWN_MAX]


def _rates_by_topic(
    before: Mapping[str, BrokerReading], now: Sequence[BrokerReading], metric: str
) -> dict[str, float]:
    sums: dict[str, float] = {}
    for reading in now:
        earlier = before.get(reading.name)
        if earlier is None or reading.at_s <= earlier.at_s:
            continue
        counted = earlier.by(metric, "topic")
        for key, value in reading.by(metric, "topic").items():
            more = value - counted.get(key, 0)
            more = more if more >= 0 else value
            sums[key[0]] = sums.get(key[0], 0) + more / (reading.at_s - earlier.at_s)
    return sums


def _groups(now: Sequence[BrokerReading]) -> list[GroupLine]:
    lags: dict[tuple[str, ...], float] = {}
    oldest_s: dict[tuple[str, ...], float] = {}
    for reading in now:
        lags |= reading.by("kafka_consumergroup_lag", "consumergroup", "topic")
        for labels, value in reading.samples.get("kafka_consumergroup_lag_seconds", {}).items():
            known = dict(labels)
            key = known["consumergroup"], known["topic"]
            oldest_s[key] = max(value, oldest_s.get(key, 0))
    lines = [
        GroupLine(group=key[0], topic=key[1], lag=int(lag), lag_s=oldest_s.get(key))
        for key, lag in lags.items()
    ]
    return sorted(lines, key=lambda line: -line.lag)[:SHOWN_MAX]


def _sinks(now: Sequence[BrokerReading]) -> list[SinkLine]:
    found: dict[str, SinkLine] = {}
    for reading in now:
        members = reading.by("headrace_sink_open_members", "sink")
        waiting = reading.by("headrace_sink_batches_waiting", "sink")
        last: dict[str, float] = {}
        for (sink, _), batch in reading.by("headrace_sink_last_batch", "sink", "query").items():
            last[sink] = max(batch, last.get(sink, batch))
        for sink in {*(sink for (sink,) in members), *last}:
            found[sink] = SinkLine(
                sink=sink,
                open_members=int(members.get((sink,), 0)),
                waiting=int(waiting.get((sink,), 0)),
                last_batch=int(last[sink]) if sink in last else None,
            )
    return sorted(found.values(), key=lambda line: (-line.open_members, line.sink))[:SHOWN_MAX]


def _problems(now: Sequence[BrokerReading]) -> list[str]:
    answered = [reading for reading in now if reading.problem is None]
    found = [f"broker {each.name} gives no metrics: {each.problem}" for each in now if each.problem]
    controllers = sum(each.total(f"{CONTROLLER}activecontrollercount") for each in answered)
    if answered and controllers != 1:
        found.append(
            f"{controllers:.0f} brokers report that they are the controller; there must be one"
        )
    offline = max(
        (each.total(f"{CONTROLLER}offlinepartitionscount") for each in answered), default=0
    )
    if offline:
        found.append(f"{offline:.0f} partitions have no leader: start the brokers that hold them")
    for each in answered:
        found += _problems_of(each)
    return found


def _problems_of(reading: BrokerReading) -> list[str]:
    found = []
    name = f"broker {reading.name}"
    refused = reading.total(f"{REPLICAS}underminisrpartitioncount")
    under = reading.total(f"{REPLICAS}underreplicatedpartitions")
    if refused:
        found.append(
            f"{name} refuses acks=all for {refused:.0f} partitions: fewer replicas are in "
            "sync than min.insync.replicas"
        )
    elif under:
        found.append(f"{under:.0f} partitions that {name} leads have a replica out of sync")
    if reading.total("kafka_log_logmanager_offlinelogdirectorycount"):
        found.append(f"{name} has log dirs out of service: see its log")
    for (directory,), full in reading.by("headrace_log_dir_full", "directory").items():
        if full:
            found.append(f"{directory} of {name} is full: appends are refused")
    longest_s = reading.total("headrace_loop_longest_turn_seconds")
    if longest_s > LONG_TURN_S:
        found.append(
            f"the event loop of {name} stood still for {longest_s:.1f} s in the last minute"
        )
    ages = reading.samples.get("headrace_partition_open_transaction_seconds", {})
    for labels, age_s in ages.items():
        if age_s > OLD_TRANSACTION_S:
            where = "-".join(dict(labels).values())
            found.append(f"readers of {where} have waited for a transaction for {age_s:.0f} s")
    return found
