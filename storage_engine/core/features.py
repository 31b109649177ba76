"""The features of a cluster: what it stores and speaks that an earlier release does not know, which
its administrator raises once every broker supports it.

A broker supports some levels of each feature. The cluster uses one of them, the finalized level,
whatever its brokers support beyond that; so a cluster that is half upgraded can be rolled back. A
new cluster begins at the newest levels, one that an earlier release has made at the lowest.
Source: KIP-584.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from storage_engine.core.errors import ErrorCode, HeadraceError, KafkaError
from storage_engine.core.ids import BrokerId
from storage_engine.core.printable import printable


class FeatureLevels(NamedTuple):
    """The levels of a feature that a broker supports, both ends inclusive."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        if self.lowest == self.highest:
            return f"level {self.lowest} only"
        return f"levels {self.lowest} to {self.highest}"

    def supports(self, level: int) -> bool:
        return self.lowest <= level <= self.highest


class KnownFeature(NamedTuple):
    """One feature of this version."""

    supported: FeatureLevels
    lossless_from: int
    """The lowest level to which it is lowered without loss: below it, something that was stored is
    not read any more."""


GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"

FEATURES: Mapping[str, KnownFeature] = MappingProxyType(
    {
        # 1: groups whose members are assigned partitions by the coordinator (KIP-848). Lowered, the
        # offsets that such groups have committed stay.
        GROUP_VERSION: KnownFeature(FeatureLevels(0, 1), lossless_from=0),
        # Clients that know it enlist partitions by writing to them, and end each transaction under
        # the next epoch (KIP-890); the others do as they always did.
        TRANSACTION_VERSION: KnownFeature(FeatureLevels(2, 2), lossless_from=2),
    }
)

Supported = Mapping[str, FeatureLevels]
"""The levels of the features that a broker supports; of others it supports UNKNOWN_LEVELS."""

UNKNOWN_LEVELS = FeatureLevels(0, 0)
"""The levels of a feature that a broker does not know."""

SUPPORTED: Supported = MappingProxyType({name: each.supported for name, each in FEATURES.items()})
"""The levels that this version supports."""

SUPPORTED_BY_FIRST_RELEASE: Supported = MappingProxyType({TRANSACTION_VERSION: FeatureLevels(2, 2)})
"""The levels of a broker that registers none, as those of release 0.1.0 do."""

MAX_LEVEL = 2**15 - 1
"""The highest level that a request can name."""


class FinalizedFeatures(NamedTuple):
    """The levels that a cluster uses."""

    levels: Mapping[str, int]
    epoch: int
    """The number of changes so far."""

    def level(self, name: str) -> int:
        """Return the level of a feature; 0 for one that is not known."""
        level, feature = self.levels.get(name, 0), FEATURES.get(name)
        lowest = 0 if feature is None else feature.supported.lowest
        return level if level > lowest else lowest


NEWEST_LEVELS: Mapping[str, int] = MappingProxyType(
    {name: levels.highest for name, levels in SUPPORTED.items()}
)
"""The levels at which a new cluster begins."""

FIRST_FEATURES = FinalizedFeatures({name: levels.lowest for name, levels in SUPPORTED.items()}, 0)
"""The features of a cluster of which an earlier release has been the first."""


class UnsupportedFeatureError(HeadraceError):
    """This broker does not support a level that the cluster uses."""


def check_supported(levels: Mapping[str, int]) -> None:
    """Raise UnsupportedFeatureError where this version does not support the levels of a cluster."""
    name = unsupported_feature(SUPPORTED, levels)
    if name is None:
        return
    supported = SUPPORTED.get(name, UNKNOWN_LEVELS)
    raise UnsupportedFeatureError(
        f"the cluster uses {printable(name)} at level {levels[name]}, and this version supports "
        f"{supported}: start a broker of a version that supports it, or let such brokers first "
        f"lower it: headrace features downgrade --feature {printable(name)}={supported.highest}"
    )


def unsupported_feature(supported: Supported, levels: Mapping[str, int]) -> str | None:
    """Return the first feature whose level a broker does not support; None where it supports
    all."""
    for name in sorted(levels):
        if not supported.get(name, UNKNOWN_LEVELS).supports(levels[name]):
            return name
    return None


class UpgradeType(IntEnum):
    """The direction in which an update may change a level, by the numbers of the protocol."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3

    @classmethod
    def of(cls, number: int) -> "UpgradeType":
        return cls(number) if cls.UPGRADE <= number <= cls.UNSAFE_DOWNGRADE else cls.UNKNOWN


class FeatureUpdate(NamedTuple):
    """A request to set a feature to a level."""

    name: str
    level: int
    upgrade_type: UpgradeType


def updated_levels(
    levels: Mapping[str, int],
    updates: Iterable[FeatureUpdate],
    brokers: Mapping[BrokerId, Supported],
    features: Mapping[str, KnownFeature] = FEATURES,
) -> dict[str, int]:
    """Return the levels after all updates. Raises KafkaError INVALID_UPDATE_VERSION with the first
    one that can't be made. `brokers`: the live brokers, with what they support."""
    wanted = dict(levels)
    named: set[str] = set()
    for update in updates:
        problem = _problem(levels, update, brokers, features)
        if problem is None and update.name in named:
            problem = "the request names the feature twice"
        if problem is not None:
            name = printable(update.name[:MAX_SHOWN])
            raise KafkaError(
                f"{name} can't be set to level {update.level}: {problem}",
                ErrorCode.INVALID_UPDATE_VERSION,
            )
        named.add(update.name)
        wanted[update.name] = update.level
    return wanted


MAX_SHOWN = 100
"""The most characters of an unknown feature's name that an error repeats."""


def _problem(
    levels: Mapping[str, int],
    update: FeatureUpdate,
    brokers: Mapping[BrokerId, Supported],
    features: Mapping[str, KnownFeature],
) -> str | None:
    """Return the reason why an update can't be made; None where it can."""
    feature = features.get(update.name)
    if feature is None:
        return f"this cluster does not know the feature; it knows {', '.join(sorted(features))}"
    if update.upgrade_type is UpgradeType.UNKNOWN:
        return "the request is neither an upgrade nor a downgrade, safe or unsafe"
    if not feature.supported.supports(update.level):
        return f"the controller supports {feature.supported}, so no other can be set"
    present = max(feature.supported.lowest, levels.get(update.name, 0))
    if update.level > present:
        if update.upgrade_type is not UpgradeType.UPGRADE:
            return (
                f"it is at level {present}, and a downgrade does not raise it: ask for an upgrade"
            )
    elif update.level < present:
        if update.upgrade_type is UpgradeType.UPGRADE:
            return (
                f"it is at level {present}, and an upgrade does not lower it: ask for a downgrade"
            )
        is_safe = update.level >= feature.lossless_from
        if not is_safe and update.upgrade_type is UpgradeType.SAFE_DOWNGRADE:
            return (
                f"below level {feature.lossless_from} some of what was stored is lost: ask for an "
                "unsafe downgrade if that may be"
            )
    for broker in sorted(brokers):
        supported = brokers[broker].get(update.name, UNKNOWN_LEVELS)
        if not supported.supports(update.level):
            return f"broker {broker} supports {supported}: upgrade that broker first, or stop it"
    return None
