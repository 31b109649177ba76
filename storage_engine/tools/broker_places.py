"""Asks brokers where they are, and whether they take new replicas: their settings say it."""

from collections.abc import Iterable

from storage_engine.client.admin.topics import ConfigEntry, describe_broker_configs
from storage_engine.client.cluster import Cluster
from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.ids import BrokerId
from storage_engine.core.placement import CORDONED_LOG_DIRS, BrokerPlace, is_cordoned


def read_places(
    cluster: Cluster, view: ClusterMetadata, brokers: Iterable[int]
) -> dict[BrokerId, BrokerPlace]:
    """Return the places of live brokers. Raises KafkaError, also without the right to describe the
    brokers' settings."""
    places = {}
    for broker in brokers:
        settings = describe_broker_configs(cluster, broker)
        places[BrokerId(broker)] = BrokerPlace(
            zone=view.brokers[broker].rack,
            # Brokers of release 0.1.0 have no such setting.
            machine=_value(settings.get("broker.host.name")) or None,
            is_cordoned=is_cordoned(
                _items(settings.get(CORDONED_LOG_DIRS)), _items(settings.get("log.dirs"))
            ),
        )
    return places


def _value(entry: ConfigEntry | None) -> str:
    return entry.value or "" if entry is not None else ""


def _items(entry: ConfigEntry | None) -> list[str]:
    return [item for item in _value(entry).split(",") if item]
