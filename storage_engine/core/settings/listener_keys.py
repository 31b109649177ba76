"""Settings of one listener alone: `listener.name.<name>.<setting>`, and for a mechanism of a
listener `listener.name.<name>.<mechanism>.<setting>`. Name and mechanism are in lower case.

Where a listener has no setting of its own, the one without the prefix counts. Source: KIP-103,
KIP-226.
"""

from typing import NamedTuple

from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.setting import Setting, unknown_key_error
from storage_engine.core.settings.settings import BY_BROKER_KEY

PREFIX = "listener.name."


class ListenerKey(NamedTuple):
    """A setting of one listener."""

    listener: str
    """In upper case, as listeners are named."""
    mechanism: str
    """In upper case; empty for what is no mechanism's."""
    setting: Setting


def listener_prefix(listener: str) -> str:
    """What stands before the settings of a listener."""
    return f"{PREFIX}{listener.lower()}."


def listener_key(key: str) -> ListenerKey | None:
    """The parts of `key`; None for the setting of no listener. ConfigError for one that listeners
    don't have."""
    if not key.startswith(PREFIX):
        return None
    listener, _, name = key.removeprefix(PREFIX).partition(".")
    if listener != listener.lower():
        raise ConfigError(f"'{key}': the listener is written in lower case here")
    setting = BY_BROKER_KEY.get(name)
    if setting is not None and setting.per_listener:
        return ListenerKey(listener.upper(), "", setting)
    mechanism, _, rest = name.partition(".")
    setting = BY_BROKER_KEY.get(rest)
    if setting is not None and setting.per_mechanism:
        return ListenerKey(listener.upper(), mechanism.upper(), setting)
    known = [row.broker_key for row in BY_BROKER_KEY.values() if row.per_listener]
    raise unknown_key_error(name, known, what=f"setting of the listener {listener.upper()} named")


def setting_named(key: str) -> Setting | None:
    """The broker's setting of that name, with the prefix of a listener or without. ConfigError as
    in `listener_key`."""
    of_listener = listener_key(key)
    return BY_BROKER_KEY.get(key) if of_listener is None else of_listener.setting
