"""The isolation levels by which consumers name what they may see of transactions (KIP-98)."""

from storage_engine.client.cluster import ISOLATION_LEVELS
from storage_engine.core.errors import ConfigError


def isolation_level(name: str) -> int:
    """The number of an isolation level in requests. Raises ConfigError for an unknown name."""
    if name not in ISOLATION_LEVELS:
        levels = ", ".join(ISOLATION_LEVELS)
        raise ConfigError(f"the isolation level is '{name}'; it must be one of {levels}")
    return ISOLATION_LEVELS[name]
