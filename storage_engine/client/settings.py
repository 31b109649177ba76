"""Settings of the public clients: Kafka's names, checked, each with its default.

Rule: a key that does not exist, or a value that is not possible, is an error of one line, before
anything is opened.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from storage_engine.core.errors import ConfigError


class Setting(NamedTuple):
    """One line of a client's table."""

    default: Any
    parse: Callable[[Any], Any]
    """ValueError, with what is wanted, for a value that is not possible."""


def parse_settings(
    config: Mapping[str, Any], table: Mapping[str, Setting], *, client: str
) -> dict[str, Any]:
    """Every setting of `table` with its value. ConfigError names the key and the remedy."""
    for key in config:
        if key not in table:
            near = difflib.get_close_matches(str(key), table, n=1, cutoff=0.5)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise ConfigError(f"'{key}' is not a setting of the {client}{hint}")
    values = {}
    for key, setting in table.items():
        if key not in config:
            values[key] = setting.default
            continue
        try:
            values[key] = setting.parse(config[key])
        except ValueError as error:
            raise ConfigError(f"{key} is {config[key]!r}; it must be {error}") from None
    return values


def integer(low: int, high: int = 0x7FFF_FFFF) -> Callable[[Any], int]:
    """A whole number from `low` to `high`, also as text."""

    def parse(value: Any) -> int:
        try:
            number = int(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return number

    return parse


def boolean(value: Any) -> bool:
    """True, False, or these as text."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError("true or false")


def text(value: Any) -> str:
    """Text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError("a text that is not empty")
    return value


def one_of(*choices: str) -> Callable[[Any], str]:
    """One of these texts."""

    def parse(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return str(value)

    return parse


def servers(value: Any) -> str:
    """host:port, several with commas or as a list."""
    if isinstance(value, (list, tuple)):
        value = ",".join(str(each) for each in value)
    return text(value)
