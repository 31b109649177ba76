"""The files of `headrace reassign` and `headrace elect-preferred`: the JSON of the znodes.

An error names the file, the entry and what is expected, in one line. Source: R-TOOL3, R-TOOL4.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from storage_engine.core.ids import TopicPartition
from storage_engine.tools.document import Document, Json
from storage_engine.tools.errors import CommandError, UsageError

_Kind = TypeVar("_Kind")

Plan = Mapping[TopicPartition, tuple[int, ...]]


def read_topics(path: Path) -> list[str]:
    """`{"topics": [{"topic": "t"}], "version": 1}`."""
    topics = [_field(path, item, "topic", str) for item in _items(path, "topics")]
    if not topics:
        raise CommandError(f"{path} names no topic")
    return list(dict.fromkeys(topics))


def read_plan(path: Path) -> Plan:
    """`{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}`."""
    plan = read_assignments(path, "partitions")
    if not plan:
        raise CommandError(f"{path} names no partition")
    return plan


def read_assignments(path: Path, key: str) -> Plan:
    """Return the replicas of the partitions in the list `key`."""
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for item in _items(path, key):
        tp = _partition(path, item)
        replicas = _field(path, item, "replicas", list)
        if not replicas or not all(_is_int(r) for r in replicas):
            raise CommandError(f"{path}: 'replicas' of {tp} must be a list of broker ids")
        if len(set(replicas)) != len(replicas):
            raise CommandError(f"{path}: {tp} names a broker twice: {replicas}")
        if tp in plan:
            raise CommandError(f"{path} names {tp} twice")
        plan[tp] = tuple(replicas)
    return plan


ANY_LOG_DIR = "any"

PlannedLogDirs = Mapping[int, Mapping[TopicPartition, str]]
"""The log dir that a plan names for each replica, by broker."""


def read_log_dirs(path: Path) -> PlannedLogDirs:
    """Reads the log dirs of a plan: beside `replicas` stands a list `log_dirs` of absolute
    paths, one for each replica, or "any"."""
    log_dirs: dict[int, dict[TopicPartition, str]] = {}
    for item in _items(path, "partitions"):
        if not isinstance(item, dict) or "log_dirs" not in item:
            continue
        tp = _partition(path, item)
        replicas = _field(path, item, "replicas", list)
        named = _field(path, item, "log_dirs", list)
        if len(named) != len(replicas):
            raise CommandError(
                f"{path}: 'log_dirs' of {tp} has {len(named)} entries for {len(replicas)} replicas"
            )
        for broker, log_dir in zip(replicas, named, strict=True):
            if log_dir == ANY_LOG_DIR:
                continue
            if not isinstance(log_dir, str) or not log_dir.startswith("/"):
                raise CommandError(
                    f"{path}: 'log_dirs' of {tp} must have absolute paths or \"any\", not"
                    f" {log_dir!r:.80}"
                )
            log_dirs.setdefault(broker, {})[tp] = log_dir
    return log_dirs


def read_partitions(path: Path) -> list[TopicPartition]:
    """`{"partitions": [{"topic": "t", "partition": 0}]}`."""
    partitions = [_partition(path, item) for item in _items(path, "partitions")]
    if not partitions:
        raise CommandError(f"{path} names no partition")
    return list(dict.fromkeys(partitions))


def plan_document(plan: Mapping[TopicPartition, Sequence[int]]) -> Document:
    """The plan as the znode's JSON has it."""
    return {
        "version": 1,
        "partitions": [
            {"topic": tp.topic, "partition": tp.partition, "replicas": list(plan[tp])}
            for tp in sorted(plan)
        ],
    }


def plan_text(plan: Mapping[TopicPartition, Sequence[int]]) -> str:
    """The plan as one line of JSON, to be kept in a file."""
    return json.dumps(plan_document(plan))


def broker_list(text: str) -> list[int]:
    """`4,5,6`; UsageError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"'--broker-list {text}' is not a list of broker ids like 4,5,6")
    ids = [int(part) for part in parts]
    if len(set(ids)) != len(ids):
        raise UsageError(f"'--broker-list {text}' names a broker twice")
    return ids


def _items(path: Path, key: str) -> list[Json]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CommandError(f"{path} is no JSON: {error}") from None
    items = document.get(key) if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise CommandError(f'{path} must be an object with a list "{key}"')
    return items


def _partition(path: Path, item: Json) -> TopicPartition:
    return TopicPartition(_field(path, item, "topic", str), _field(path, item, "partition", int))


def _field(path: Path, item: Json, key: str, kind: type[_Kind]) -> _Kind:
    value = item.get(key) if isinstance(item, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        expected = {str: "a string", int: "a whole number", list: "a list"}[kind]
        raise CommandError(f"{path}: an entry {item!r:.80} has no '{key}' that is {expected}")
    return value


def _is_int(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
