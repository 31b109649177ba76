"""The start and the end of a read, in the user's options. This module parses the text;
`source/offset_resolution.py` asks the cluster for the offsets.

Source: startingOffsets, startingOffsetsByTimestamp, startingTimestamp and assign of Spark's Kafka
connector.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from connector.errors import OptionError
from storage_engine.core.ids import TopicPartition, topic_name_problem
from storage_engine.core.typed.bounded_json import JsonObject, JsonValue

LATEST = -1
EARLIEST = -2
"""The two special offsets, as Kafka's ListOffsets and Spark's JSON both write them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Everywhere:
    """The same special offset, EARLIEST or LATEST, for every partition."""

    special: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PerPartition:
    """An offset, EARLIEST or LATEST for each partition that the user names."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimestamp:
    """The first record at or after a time, for every partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PerPartitionTimestamp:
    """A time for each partition that the user names; reading begins at the first record at or after
    it."""

    timestamps_ms: Mapping[TopicPartition, int]


MAX_SHOWN_CHARACTERS = 120
"""How much of a wrong value an error message shows, so that it stays one line."""

OffsetSpec: TypeAlias = Everywhere | PerPartition | AtTimestamp | PerPartitionTimestamp


def parse_offsets(option: str, text: str) -> OffsetSpec:
    """Parses `earliest`, `latest`, or `{"topic":{"0":23,"1":-2}}`."""
    match text.strip().lower():
        case "earliest":
            return Everywhere(special=EARLIEST)
        case "latest":
            return Everywhere(special=LATEST)
    form = """'earliest', 'latest' or JSON such as {"topic":{"0":23,"1":-2}}"""
    offsets = _parse_per_partition(option, text, form)
    for topic_partition, offset in offsets.items():
        if offset < EARLIEST:
            raise _wrong(option, f"{offset} for {topic_partition}", "an offset, -1 or -2")
    return PerPartition(offsets=offsets)


def parse_offsets_by_timestamp(option: str, text: str) -> OffsetSpec:
    """Parses `{"topic":{"0":1700000000000}}`, in ms since 1970."""
    form = """JSON such as {"topic":{"0":1700000000000}}"""
    timestamps_ms = _parse_per_partition(option, text, form)
    for topic_partition, timestamp_ms in timestamps_ms.items():
        if timestamp_ms < 0:
            raise _wrong(option, f"{timestamp_ms} for {topic_partition}", "ms since 1970")
    return PerPartitionTimestamp(timestamps_ms=timestamps_ms)


def parse_assign(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Parses `{"topic":[0,1]}`. The partitions are sorted."""
    form = """JSON such as {"topic":[0,1]}"""
    assigned = set()
    for topic, partitions in _parse_object(option, text, form).items():
        _check_topic(option, topic)
        if not isinstance(partitions, list):
            raise _wrong(option, text, form)
        for partition in partitions:
            if not _is_int(partition) or partition < 0:
                raise _wrong(option, text, form)
            assigned.add(TopicPartition(topic, partition))
    if not assigned:
        raise _wrong(option, text, f"{form} with one partition or more")
    return tuple(sorted(assigned))


def parse_topics(option: str, text: str) -> tuple[str, ...]:
    """Parses `topic1,topic2`. The topics are sorted, each once."""
    topics = {topic.strip() for topic in text.split(",")} - {""}
    if not topics:
        raise _wrong(option, text, "one topic or more, separated by commas")
    for topic in topics:
        _check_topic(option, topic)
    return tuple(sorted(topics))


def _parse_per_partition(option: str, text: str, form: str) -> dict[TopicPartition, int]:
    offsets = {}
    for topic, by_partition in _parse_object(option, text, form).items():
        _check_topic(option, topic)
        if not isinstance(by_partition, dict):
            raise _wrong(option, text, form)
        for partition, number in by_partition.items():
            if not partition.isascii() or not partition.isdigit() or not _is_int(number):
                raise _wrong(option, text, form)
            offsets[TopicPartition(topic, int(partition))] = number
    if not offsets:
        raise _wrong(option, text, form)
    return offsets


def _parse_object(option: str, text: str, form: str) -> JsonObject:
    try:
        parsed = json.loads(text)
    except ValueError:
        raise _wrong(option, text, form) from None
    if not isinstance(parsed, dict):
        raise _wrong(option, text, form)
    return parsed


def _is_int(value: JsonValue) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_topic(option: str, topic: str) -> None:
    problem = topic_name_problem(topic)
    if problem is not None:
        raise OptionError("BAD_OPTION", f"'{option}': {problem}")


def _wrong(option: str, text: str, form: str) -> OptionError:
    shown = text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"
    return OptionError("BAD_OPTION", f"'{option}' must be {form}, not {shown!r}")
