"""The settings of the broker that a group coordinator uses."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field


class MigrationPolicy(enum.Enum):
    """Whether a group changes its protocol while it has members, by the values of
    `group.consumer.migration.policy`."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        """True when a classic group becomes a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """True when a consumer group becomes a classic group."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The settings `group.consumer.*`."""

    session_timeout_ms: int = 45_000
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    max_size: int = 2**31 - 1
    assignors: Sequence[str] = ("uniform", "range")
    """The names that clients may ask for; the first is the default."""
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings of the broker that a coordinator uses."""

    initial_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    record_max_bytes: int = 8 << 20
    """The limit of a group's record."""
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
