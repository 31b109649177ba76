"""The sources of a setting's value, as DescribeConfigs names them. Source: KIP-226."""

import enum


class ConfigSource(enum.IntEnum):
    """The numbers are those of the protocol; the source with the smallest number counts, after that
    of a group."""

    UNKNOWN = 0
    """A broker named another number."""
    TOPIC = 1
    BROKER = 2
    """Set for one broker at run time."""
    ALL_BROKERS = 3
    """Set for all brokers at run time."""
    FILE = 4
    """The broker's server.properties."""
    DEFAULT = 5
    LOGGER = 6
    """The level of a broker's logger (KIP-412)."""
    GROUP = 8
    """Set for one group at run time (KIP-848)."""

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN
