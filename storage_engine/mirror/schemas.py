"""Brings the schemas of typed topics into the target of a mirror, each version before the batches
that need it.

    source     target                                    copied
    typed      typed, made by the mirror or by others    as columns; versions that the target lacks
                                                           are added, those it has must be the same
    typed      untyped, or a cluster without schemas     as JSON records
    untyped    any                                       as records

Source: R-CLI6.
"""

from collections.abc import Mapping
from uuid import UUID

from storage_engine.client.admin.topics import alter_topic_configs
from storage_engine.client.cluster import Cluster
from storage_engine.client.retry import Retry
from storage_engine.client.topic_schemas import KnownSchema, TopicSchemas
from storage_engine.core.errors import ConfigError, UnsupportedVersionError
from storage_engine.core.typed.foreign_format import FORMAT_SETTING, ForeignFormat
from storage_engine.core.typed.topic_schema import (
    SCHEMA_SETTING,
    TopicSchema,
    UnknownSchemaVersionError,
)
from storage_engine.mirror.progress import Copy, TopicIds
from storage_engine.mirror.source import Tell
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.describe_schemas import API as DESCRIBE_SCHEMAS
from storage_engine.protocol.typed.kept_rows import TypedTarget

_Topics = tuple[str, str, str]
"""The source, its topic, and the topic of the target."""


_NAMES = {ForeignFormat.JSON: "JSON", ForeignFormat.AVRO: "Avro"}


class MirroredSchemas:
    """The schemas of the topics that are copied, in the sources and in the target."""

    def __init__(self, target: Cluster, sources: Mapping[str, Cluster], report: Tell) -> None:
        self._target = target
        self._report = report
        self._of_target = TopicSchemas(target)
        self._of_sources = {name: TopicSchemas(each) for name, each in sources.items()}
        self._known: dict[_Topics, tuple[TopicIds, TypedTarget | None]] = {}

    def settings_for_target(self, topic: str, settings: dict[str, str]) -> dict[str, str]:
        """Return the settings to create a topic of the target with: without a schema where the
        cluster supports none."""
        if SCHEMA_SETTING not in settings or _knows_schemas(self._target):
            return settings
        form = ForeignFormat(settings.get(FORMAT_SETTING, ForeignFormat.JSON))
        self._report(
            f"topic '{topic}': brokers of the target know no schemas, rows become "
            f"{_NAMES[form]} records"
        )
        typed = (SCHEMA_SETTING, FORMAT_SETTING)
        return {name: value for name, value in settings.items() if name not in typed}

    def refresh(self, copied: Mapping[Copy, TopicIds]) -> None:
        """Compare the schemas of topics that are new. ConfigError when the target has a topic with
        another schema."""
        before, self._known = self._known, {}
        for copy, ids in copied.items():
            topics = _topics(copy)
            if topics in self._known:
                continue
            known = before.get(topics)
            if known is None or known[0] != ids:
                known = ids, self._compared(topics)
            self._known[topics] = known

    def target_of(self, copy: Copy) -> TypedTarget | None:
        """Return the target of typed batches; None for a partition that is copied as records."""
        return self._known[_topics(copy)][1]

    def bring_later(self, copy: Copy) -> None:
        """Bring the versions that the source has added since. UnknownSchemaVersionError when it
        reports none within the cluster's deadline."""
        topics = _topics(copy)
        ids, known = self._known[topics]
        assert known is not None, "records have no version"
        source, topic, target = topics
        retry = Retry(
            f"a later schema of topic '{topic}' of {source}",
            Deadline.after(self._target.deadline_ms),
        )
        while True:
            found = self._of_sources[source].refresh(topic)
            if found is not None and len(found.schema.versions) > len(known.schema.versions):
                break
            # The broker that answered may be the last to learn of it.
            retry.pause(
                UnknownSchemaVersionError(
                    f"topic '{topic}' of {source} has a batch of a version of its schema that"
                    " no broker tells of"
                )
            )
        # Somebody else may have altered the target's schema meanwhile.
        ours = self._of_target.refresh(target)
        schema = known.schema if ours is None else ours.schema
        self._known[topics] = ids, self._brought(topics, found, known.topic_id, schema)

    def _compared(self, topics: _Topics) -> TypedTarget | None:
        source, topic, target = topics
        theirs = self._of_sources[source].refresh(topic)
        if theirs is None:
            return None
        ours = self._of_target.refresh(target)
        if ours is None:
            self._report(
                f"topic '{topic}' of {source} has a schema, '{target}' of the target has none: "
                "rows become JSON records"
            )
            return None
        return self._brought(topics, theirs, ours.topic_id, ours.schema)

    def _brought(
        self, topics: _Topics, theirs: KnownSchema, topic_id: UUID, ours: TopicSchema
    ) -> TypedTarget:
        """Add the source's versions that the target lacks. Only the source's versions count from
        then on: the target's own later ones have the same numbers as the source's next."""
        source, topic, target = topics
        count = min(len(ours.versions), len(theirs.schema.versions))
        if (ours.key, ours.versions[:count]) != (
            theirs.schema.key,
            theirs.schema.versions[:count],
        ):
            raise ConfigError(
                f"topic '{target}' of the target has another schema than '{topic}' of {source}: "
                "delete it, or copy to another name with --target-topic"
            )
        if len(theirs.schema.versions) > count:
            alter_topic_configs(self._target, target, {SCHEMA_SETTING: theirs.schema.to_json()})
        return TypedTarget(topic_id, theirs.schema)


def _topics(copy: Copy) -> _Topics:
    return copy.source, copy.tp.topic, copy.target.topic


def _knows_schemas(cluster: Cluster) -> bool:
    """Whether the cluster's brokers serve DescribeSchemas: Kafka's do not."""
    deadline = Deadline.after(cluster.deadline_ms)
    connection = cluster.take(next(iter(cluster.view.brokers)), deadline)
    try:
        connection.version_for(DESCRIBE_SCHEMAS)
    except UnsupportedVersionError:
        return False
    finally:
        cluster.give_back(connection)
    return True
