"""What a listener does before the first request: Kafka's four security protocols."""

import enum


class SecurityProtocol(enum.Enum):
    """A listener's protocol, by the number that it has in Kafka's messages."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

    @classmethod
    def named(cls, text: str) -> "SecurityProtocol | None":
        """The protocol of that name, in upper or lower case; None when there is none."""
        return cls.__members__.get(text.strip().upper())


PROTOCOL_NAMES = ", ".join(SecurityProtocol.__members__)
