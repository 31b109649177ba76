"""The id of the topic that a partition's folder belongs to. A folder is never used for another
topic of the same name.

    partition.metadata (one per partition; the format is Kafka's):
        version: 0
        topic_id: <22 characters of base64>

A topic may be deleted and created again while a broker is away; without the id its old records
would be served as those of the new topic. When the file is missing or damaged the id is not known,
and the next id from the controller is accepted. Source: KIP-516.
"""

import logging
from pathlib import Path
from uuid import UUID

from storage_engine.core.ids import topic_id_from_text, topic_id_to_text
from storage_engine.core.system_errors import Reach, reach_of_file_error
from storage_engine.log.files.disk import Disk, replace_file
from storage_engine.log.files.storage_errors import storage_error

PARTITION_METADATA_FILE = "partition.metadata"

_VERSION_LINE = "version: 0"
_TOPIC_ID = "topic_id: "

logger = logging.getLogger(__name__)


def read_topic_id(disk: Disk, directory: Path) -> UUID | None:
    """Return the topic's id; None when the folder does not have it. LogStorageError when it can't
    be read."""
    path = directory / PARTITION_METADATA_FILE
    try:
        content = disk.read_file(path) if disk.exists(path) else None
    except OSError as error:
        raise storage_error("read", path, error) from error
    if content is None:
        return None
    try:
        version, topic_id, end = content.decode("utf-8").split("\n")
        if version != _VERSION_LINE or not topic_id.startswith(_TOPIC_ID) or end:
            raise ValueError("it is not of the form 'version: 0', 'topic_id: <id>'")
        return topic_id_from_text(topic_id.removeprefix(_TOPIC_ID))
    except ValueError as error:
        logger.warning("topic id ignored, it is damaged file=%s reason=%s", path, error)
        return None


def write_topic_id(disk: Disk, directory: Path, topic_id: UUID, *, sync: bool = False) -> None:
    """Writes the id. It survives a crash of the process, and one of the machine with `sync`; else
    the log's first flush syncs it. Without room the write is left to the next time that the replica
    begins. LogStorageError when the folder can't be written at all.
    """
    path = directory / PARTITION_METADATA_FILE
    content = f"{_VERSION_LINE}\n{_TOPIC_ID}{topic_id_to_text(topic_id)}\n"
    try:
        replace_file(disk, path, content.encode(), sync=sync)
    except OSError as error:
        if reach_of_file_error(error) is not Reach.ROOM:
            raise storage_error("write", path, error) from error
        logger.warning("no room for the topic id file=%s", path)
