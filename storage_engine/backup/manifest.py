"""The manifest of a backup: everything that belongs to it, as JSON that no flipped bit survives.

    {"format": 1, "crc32c": "<8 hex digits of the canonical JSON of `backup`>", "backup": {...}}

The text is canonical (sorted keys, no spaces), and reading writes it anew and compares, so that a
change of any byte is noticed. A manifest names every file of its backup, those of earlier backups
included: nothing else is needed to restore it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

from crc32c import crc32c

from storage_engine.backup.errors import BackupError, DamagedError

FORMAT = 1

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of the store: its size in bytes, and the CRC-32C of its content."""

    name: str
    size: int
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFile(StoredFile):
    """Whole batches of a partition, from `base_offset` to `end_offset` (exclusive)."""

    base_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBatch:
    """The batch at the end of what the next backup goes on behind: if the log has another one
    there, it is not the same log any more."""

    base_offset: int
    crc: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBackup:
    """One partition.

    Invariant: start_offset <= body_end <= end_offset; `files` ascend and end at `body_end`.
    """

    partition: int
    leader_epoch: int
    """The highest leader epoch that was seen, in the log or of its leader."""
    start_offset: int
    body_end: int
    """Below it `files` hold every batch of the log, as it was when it was read."""
    end_offset: int
    """The end of the restored log."""
    last: LastBatch | None
    """The last batch below `body_end`; None where there is none."""
    files: tuple[BatchFile, ...]
    tail: BatchFile | None
    """The batches from `body_end` on that belong to the moment of the backup."""

    @property
    def all_files(self) -> tuple[BatchFile, ...]:
        """In the order of their offsets."""
        return self.files if self.tail is None else (*self.files, self.tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBackup:
    name: str
    topic_id: str
    """32 hex digits."""
    compacted: bool
    copied_ms: int
    """When the oldest of the offsets that were read last was read, for the limit of
    `is_complete_after`."""
    delete_retention_ms: int
    partitions: tuple[PartitionBackup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    number: int
    backup_id: str
    cluster_id: str
    begun_ms: int
    ended_ms: int
    has_secrets: bool
    new_bytes: int
    """The bytes that this backup has added to the store."""
    znodes: StoredFile
    topics: tuple[TopicBackup, ...]

    @property
    def name(self) -> str:
        return manifest_name(self.number)

    @property
    def files(self) -> list[StoredFile]:
        """Every file of the store that the backup needs beside its manifest."""
        batches = [
            file
            for topic in self.topics
            for partition in topic.partitions
            for file in partition.all_files
        ]
        return [self.znodes, *batches]

    def topic(self, name: str, topic_id: str) -> TopicBackup | None:
        """The topic of that name, unless it was another one."""
        for topic in self.topics:
            if topic.name == name:
                return topic if topic.topic_id == topic_id else None
        return None


MANIFESTS = "backups/"
_DIGITS = 8


def manifest_name(number: int) -> str:
    return f"{MANIFESTS}{number:0{_DIGITS}d}.json"


def manifest_number(name: str) -> int | None:
    """The number in the name of a manifest; None for other files."""
    digits = name.removeprefix(MANIFESTS).removesuffix(".json")
    if digits.isascii() and digits.isdigit() and manifest_name(int(digits)) == name:
        return int(digits)
    return None


def encode_manifest(manifest: Manifest) -> bytes:
    backup = _canonical(asdict(manifest))
    crc = crc32c(backup)
    return b'{"backup":%s,"crc32c":"%08x","format":%d}\n' % (backup, crc, FORMAT)


def _canonical(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def decode_manifest(name: str, data: bytes) -> Manifest:
    """DamagedError for what is no manifest; BackupError for one of a later release."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise DamagedError(f"{name} is damaged: it is not JSON; {_REMEDY}") from None
    try:
        fields = _Fields(document)
        written = fields.integer("format")
        if written > FORMAT:
            raise BackupError(
                f"{name} has format {written}, and this release knows formats up to {FORMAT}: "
                "restore with the release that wrote it, or a later one"
            )
        manifest = _manifest(_Fields(fields.item("backup")))
    except _MalformedError as error:
        raise DamagedError(f"{name} is damaged: {error}; {_REMEDY}") from None
    if encode_manifest(manifest) != data:
        raise DamagedError(f"{name} is damaged: its checksum does not match; {_REMEDY}")
    return manifest


_REMEDY = "take an earlier backup (headrace backup --list)"


class _MalformedError(Exception):
    pass


class _Fields:
    """The fields of an object, each checked."""

    def __init__(self, item: Json) -> None:
        if not isinstance(item, Mapping):
            raise _MalformedError("an object is missing")
        self._item = item

    def item(self, key: str) -> Json:
        if key not in self._item:
            raise _MalformedError(f"'{key}' is missing")
        return self._item[key]

    def text(self, key: str) -> str:
        value = self.item(key)
        if not isinstance(value, str):
            raise _MalformedError(f"'{key}' is no text")
        return value

    def boolean(self, key: str) -> bool:
        value = self.item(key)
        if not isinstance(value, bool):
            raise _MalformedError(f"'{key}' is neither true nor false")
        return value

    def integer(self, key: str, least: int = 0) -> int:
        value = self.item(key)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST:
            raise _MalformedError(f"'{key}' is no whole number from {least} on")
        return value

    def items(self, key: str) -> "list[_Fields]":
        value = self.item(key)
        if not isinstance(value, list):
            raise _MalformedError(f"'{key}' is no list")
        return [_Fields(each) for each in value]

    def optional(self, key: str) -> "_Fields | None":
        value = self.item(key)
        return None if value is None else _Fields(value)


def _manifest(fields: _Fields) -> Manifest:
    return Manifest(
        number=fields.integer("number", 1),
        backup_id=fields.text("backup_id"),
        cluster_id=fields.text("cluster_id"),
        begun_ms=fields.integer("begun_ms"),
        ended_ms=fields.integer("ended_ms"),
        has_secrets=fields.boolean("has_secrets"),
        new_bytes=fields.integer("new_bytes"),
        znodes=_stored(_Fields(fields.item("znodes"))),
        topics=tuple(map(_topic, fields.items("topics"))),
    )


def _topic(fields: _Fields) -> TopicBackup:
    return TopicBackup(
        name=fields.text("name"),
        topic_id=fields.text("topic_id"),
        compacted=fields.boolean("compacted"),
        copied_ms=fields.integer("copied_ms"),
        delete_retention_ms=fields.integer("delete_retention_ms"),
        partitions=tuple(map(_partition, fields.items("partitions"))),
    )


def _partition(fields: _Fields) -> PartitionBackup:
    last, tail = fields.optional("last"), fields.optional("tail")
    return PartitionBackup(
        partition=fields.integer("partition"),
        leader_epoch=fields.integer("leader_epoch", -1),
        start_offset=fields.integer("start_offset"),
        body_end=fields.integer("body_end"),
        end_offset=fields.integer("end_offset"),
        last=None
        if last is None
        else LastBatch(
            base_offset=last.integer("base_offset"),
            crc=last.integer("crc"),
            leader_epoch=last.integer("leader_epoch", -1),
        ),
        files=tuple(map(_batches, fields.items("files"))),
        tail=None if tail is None else _batches(tail),
    )


def _batches(fields: _Fields) -> BatchFile:
    return BatchFile(
        name=fields.text("name"),
        size=fields.integer("size"),
        crc=fields.integer("crc"),
        base_offset=fields.integer("base_offset"),
        end_offset=fields.integer("end_offset"),
    )


def _stored(fields: _Fields) -> StoredFile:
    return StoredFile(
        name=fields.text("name"), size=fields.integer("size"), crc=fields.integer("crc")
    )
