"""Settings of one listener: `listener.name.<listener>.<setting>`, and of one SASL mechanism there,
`listener.name.<listener>.<mechanism>.<setting>`; both names in lower case or as they are.

They count in place of the setting without these names. The error for a mistake is one line that
names the key. Source: KIP-103, KIP-226.
"""

import re
from dataclasses import dataclass

from storage_engine.broker.settings.listener import NAME
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.sasl_client import MECHANISMS
from storage_engine.core.settings.setting import Setting, unknown_key_error
from storage_engine.core.settings.settings import BY_BROKER_KEY

PREFIX = "listener.name."

_FORM = re.compile(rf"{re.escape(PREFIX)}(?P<listener>{NAME})\.(?P<rest>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerKey:
    """The key of such a setting, taken apart."""

    listener: str
    """In upper case."""
    mechanism: str = ""
    """Empty: all mechanisms of the listener."""
    key: str

    @classmethod
    def parse(cls, text: str) -> "ListenerKey":
        """ConfigError when there is no such setting, or none that a listener may have."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise ConfigError(f"'{text}' must be {PREFIX}<name of the listener>.<setting>")
        listener, rest = match["listener"].upper(), match["rest"]
        mechanism = ""
        if rest not in BY_BROKER_KEY:
            for each in MECHANISMS:
                if rest.lower().startswith(f"{each.lower()}."):
                    mechanism, rest = each, rest[len(each) + 1 :]
        setting = BY_BROKER_KEY.get(rest)
        if setting is None:
            known = [row.broker_key for row in BY_BROKER_KEY.values() if row.per_listener]
            raise unknown_key_error(rest, known, what=f"setting of a listener, as in '{text}',")
        if not setting.per_listener:
            raise ConfigError(f"'{text}': '{rest}' is the same for all listeners: set it as it is")
        if mechanism and not setting.per_mechanism:
            raise ConfigError(f"'{text}': '{rest}' is the same for all mechanisms: leave that out")
        return cls(listener=listener, mechanism=mechanism, key=rest)

    @property
    def setting(self) -> Setting:
        return BY_BROKER_KEY[self.key]

    def __str__(self) -> str:
        mechanism = f"{self.mechanism.lower()}." if self.mechanism else ""
        return f"{PREFIX}{self.listener.lower()}.{mechanism}{self.key}"


def is_listener_key(key: str) -> bool:
    return key.startswith(PREFIX)
