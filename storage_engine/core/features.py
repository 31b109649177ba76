"""The features that all brokers of a cluster use at one level, and the levels that this version
supports. Source: KIP-584.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from storage_engine.core.errors import ErrorCode, KafkaError


class FeatureLevels(NamedTuple):
    """The supported levels of a feature, both ends inclusive."""

    lowest: int
    highest: int


TRANSACTION_VERSION = "transaction.version"

FEATURES: Mapping[str, FeatureLevels] = MappingProxyType(
    # Clients that know it enlist partitions by writing to them, and end each transaction under the
    # next epoch (KIP-890); the others do as they always did.
    {TRANSACTION_VERSION: FeatureLevels(2, 2)}
)
"""The features; each is in use at its highest level."""


def check_update(name: str, level: int) -> None:
    """Raise KafkaError unless the feature can be, and so is, at that level."""
    levels = FEATURES.get(name)
    if levels is None:
        problem = f"this cluster does not know the feature; it knows {', '.join(sorted(FEATURES))}"
    elif level == levels.highest:
        return
    else:
        problem = f"this cluster supports levels {levels.lowest} to {levels.highest}"
    raise KafkaError(
        f"invalid update version {level} for feature {name}: {problem}",
        ErrorCode.INVALID_UPDATE_VERSION,
    )
