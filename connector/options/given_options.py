"""The options that the user gave, by their names in the option table, and their typed values. The
error about a malformed value is one line: the option, the form that it must have, and the value.
"""

import re
from collections.abc import Iterable, Mapping

from connector.errors import OptionError
from connector.options.option_table import (
    TABLE_PREFIX,
    Side,
    Status,
    lookup,
    without_table_properties,
)
from connector.options.registry_names import REGISTRY_SECRETS
from storage_engine.client.security.security_rows import SECRET_KEYS

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_STORE_SECRET = re.compile("secret|token|password|access_key_id")

_UNITS_MS = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


class GivenOptions:
    """The options of one reader or writer."""

    def __init__(self, options: Mapping[str, str], *, side: Side) -> None:
        self._texts: dict[str, str] = {}
        notes = []
        for key, text in without_table_properties(options).items():
            entry = lookup(key, side=side)
            if entry.status is Status.NO_EFFECT:
                notes.append(f"the option '{entry.name}' has no effect here: {entry.why}")
                continue
            if entry.name in SECRET_KEYS | REGISTRY_SECRETS:
                notes.append(
                    f"the option '{entry.name}' is a secret, and Spark stores and shows options: "
                    "put it into a file that each worker has, and name that with client.config.file"
                )
            if entry.name.startswith(f"{TABLE_PREFIX}store.") and _STORE_SECRET.search(entry.name):
                notes.append(
                    f"the option '{entry.name}' is a secret, and Spark stores and shows options: "
                    "give it to driver and workers by their environment, as the store's tools do"
                )
            if self._texts.setdefault(entry.name, text) != text:
                raise OptionError(
                    "BAD_OPTION",
                    f"'{entry.name}' is given with and without 'kafka.', with different "
                    "values; leave one of them out",
                )
        self.notes = tuple(dict.fromkeys(notes))

    def text(self, name: str) -> str | None:
        """The value as text. None where the option is not given, as in all of these methods."""
        return self._texts.get(name)

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """The values of all options whose names begin with `prefix`, by the rest of the name."""
        return {
            name.removeprefix(prefix): text
            for name, text in self._texts.items()
            if name.startswith(prefix)
        }

    def integer(self, name: str, *, low: int, high: int) -> int | None:
        """A whole number. Both bounds are inclusive."""
        text = self.text(name)
        if text is None:
            return None
        # `int` alone would accept 1_0, and digits of other scripts.
        form = re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", text)
        number = low - 1 if form is None else int(text)
        if not low <= number <= high:
            raise bad_option(name, f"a whole number from {low} to {high}", text)
        return number

    def boolean(self, name: str, *, default: bool) -> bool:
        """`true` or `false`, in upper or lower case."""
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise bad_option(name, "true or false", text)
        return text.strip().lower() == "true"

    def choice(self, name: str, choices: Iterable[str]) -> str | None:
        """One of `choices`, in lower case."""
        text = self.text(name)
        if text is None:
            return None
        if text.strip().lower() not in choices:
            raise bad_option(name, " or ".join(f"'{choice}'" for choice in choices), text)
        return text.strip().lower()

    def duration_ms(self, name: str, *, default: int) -> int:
        """A number and a unit, in ms where there is no unit."""
        text = self.text(name)
        if text is None:
            return default
        match = re.fullmatch(r"\s*([0-9]+)\s*([a-z]*)\s*", text.lower())
        if match is None or match[2] not in _UNITS_MS:
            raise bad_option(name, "a time such as 15m, 30s or 500ms", text)
        return int(match[1]) * _UNITS_MS[match[2]]


def bad_option(name: str, form: str, text: str) -> OptionError:
    """The error for a value that is not of its form."""
    return OptionError("BAD_OPTION", f"'{name}' must be {form}, not {text!r}")


_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,]*?))\s*(?:,|$)")


def parse_names(option: str, text: str) -> tuple[str, ...]:
    """The names in their order, each once, upper and lower case aside. OptionError where there is
    none, or for a backquote that does not end."""
    names: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _NAME.match(text, position)
        if found is None:
            raise bad_option(option, "names separated by commas, such as id,`a, b`", text)
        name = (found[1] or "").replace("``", "`") or found[2] or ""
        if name:
            names.setdefault(name.lower(), name)
        position = found.end()
    if not names:
        raise bad_option(option, "one name or more, separated by commas", text)
    return tuple(names.values())
