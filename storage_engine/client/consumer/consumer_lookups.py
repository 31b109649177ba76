"""Looks up offsets of partitions for a consumer, whether it reads them or not."""

from collections.abc import Iterable, Mapping

from storage_engine.client.cluster import EARLIEST, LATEST
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.groups.committed_offsets import committed_offsets
from storage_engine.client.turn import Turn, in_turn
from storage_engine.core.errors import ConfigError
from storage_engine.core.ids import TopicPartition

LARGEST_OFFSET = (1 << 63) - 1
"""The largest offset, and the latest time in milliseconds."""


def check_offset(tp: TopicPartition, offset: int) -> None:
    """ConfigError for a number that is no offset of a log."""
    if not 0 <= offset <= LARGEST_OFFSET:
        raise ConfigError(f"{TopicPartition(*tp)}: {offset} is not an offset of a log")


class ConsumerLookups:
    """The part of a consumer that looks up offsets, and asks for no records."""

    def __init__(self, config: ConsumerConfig, turn: Turn) -> None:
        self._config = config
        self._turn = turn
        self._cluster = config.cluster()

    @in_turn
    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic. Raises KafkaError when the topic does not exist."""
        return [TopicPartition(topic, n) for n in sorted(self._cluster.topic(topic).partitions)]

    @in_turn
    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset of each partition whose record is not older than the given time; None
        when all are older."""
        wanted = {TopicPartition(*tp): at for tp, at in timestamps_ms.items()}
        for tp, at in wanted.items():
            if not 0 <= at <= LARGEST_OFFSET:
                raise ConfigError(
                    f"{tp}: {at} is not a time in milliseconds; see beginning_offsets, end_offsets"
                )
        found = self._cluster.list_offsets(
            wanted,
            isolation=self._config.isolation_level,
        )
        return {tp: offset if offset >= 0 else None for tp, offset in found.items()}

    @in_turn
    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each log."""
        return self._offsets(partitions, EARLIEST)

    @in_turn
    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each log, exclusive, as far as it can be read under `isolation.level`."""
        return self._offsets(partitions, LATEST)

    def _offsets(self, partitions: Iterable[TopicPartition], end: int) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys((TopicPartition(*tp) for tp in partitions), end)
        return self._cluster.list_offsets(wanted, isolation=self._config.isolation_level)

    @in_turn
    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets for these partitions; None for a partition without one.
        Waits for the end of transactions that commit offsets."""
        group = self._group_id("committed")
        wanted = [TopicPartition(*tp) for tp in partitions]
        stored = committed_offsets(self._cluster, group, wanted)
        return {tp: stored.get(tp) for tp in wanted}

    def _group_id(self, what: str) -> str:
        if self._config.group_id is None:
            raise ConfigError(f"{what} needs a group.id; give the consumer one")
        return self._config.group_id
