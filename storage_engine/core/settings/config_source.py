"""Where the value of a setting comes from, as brokers tell it. Source: KIP-226, DescribeConfigs."""

import enum


class ConfigSource(enum.IntEnum):
    """By the protocol's number; the smaller one counts."""

    UNKNOWN = 0
    """Of a broker that tells another number."""
    TOPIC = 1
    BROKER = 2
    """Set for one broker at run time."""
    ALL_BROKERS = 3
    """Set for all brokers at run time."""
    FILE = 4
    """The broker's server.properties."""
    DEFAULT = 5

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN
