"""Who a request comes from, in Kafka's form: `User:alice`."""

from dataclasses import dataclass

from storage_engine.core.errors import ConfigError

USER = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """A kind and a name; the name of a TLS client is the subject of its certificate."""

    name: str
    kind: str = USER

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str, *, key: str) -> "Principal":
        """ConfigError that names the setting `key` when `text` is not kind:name."""
        kind, colon, name = text.strip().partition(":")
        if not (colon and kind and name):
            raise ConfigError(f"{key}={text}: must be kind:name, for example User:alice")
        return cls(name=name, kind=kind)


ANONYMOUS = Principal("ANONYMOUS")
"""Whoever comes by a listener that authenticates nobody."""
