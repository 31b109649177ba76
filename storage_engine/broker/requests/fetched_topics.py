"""Translates the topic ids of a fetch to names for the reader, and back for the answer.

An id is looked up anew for each request, since a topic of the name may have been created again; the
reader checks that the replica belongs to the topic of that id. Source: KIP-516.
"""

from collections.abc import Generator, Iterable

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.protocol.apis.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
)
from storage_engine.protocol.apis.topic_ids import id_of_text

UNKNOWN = ""
"""The name of a topic that this broker does not know."""


def with_names(metadata: MetadataCache, asked: Iterable[FetchPartition]) -> list[FetchPartition]:
    """The partitions by names, each with the id. ValueError for what can't be an id: a name that a
    session has from a request of an older version."""
    partitions: list[FetchPartition] = []
    text = name = ""
    topic_id = None
    for wanted in asked:
        if wanted.topic != text or topic_id is None:
            text = wanted.topic
            topic_id = id_of_text(text)
            # A topic without an id, which others would take for that of any other.
            found = metadata.topic_name(topic_id) if topic_id.int else None
            name = UNKNOWN if found is None else found
        partitions.append(wanted._replace(topic=name, topic_id=topic_id))
    return partitions


def with_ids(
    asked: FetchRequest, answers: Iterable[FetchPartitionResponse]
) -> Generator[None, None, list[FetchPartitionResponse]]:
    """The answers, in the order of the request, as it named the topics; in steps."""
    named = []
    for wanted, answer in zip(asked.partitions, answers, strict=True):
        named.append(answer._replace(topic=wanted.topic))
        yield None
    return named
