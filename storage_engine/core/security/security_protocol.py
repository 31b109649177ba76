"""The protocol of a listener before the first request (Kafka's four security protocols), and
passwords and keys among settings: printed, a secret shows that it is set, and no more.
"""

import enum
from typing import Final

HIDDEN: Final = "[hidden]"


class Secret:
    """A text that must not be shown. `reveal` is called where it is used, and nowhere else."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)


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
        """Return the protocol of that name, in upper or lower case; None when there is none."""
        return cls.__members__.get(text.strip().upper())


PROTOCOL_NAMES = ", ".join(SecurityProtocol.__members__)
