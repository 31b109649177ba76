"""One setting: its name, type, default, range, unit, scope and meaning; text to value and back.

A value that is not allowed never gets in; the error names key, value and what is allowed.
"""

import enum
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import HIDDEN, Secret

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
"""Kafka's value for "never" and "unlimited"."""

SettingValue = bool | int | float | str | Secret | tuple[str, ...] | None
"""A list is a tuple of strings; None is "not set"."""


class SettingType(enum.Enum):
    """The types of values, with their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9
    """A text that nobody is shown: a `Secret`."""


class Scope(enum.Enum):
    """The places where a setting may be set."""

    BROKER = "broker"
    TOPIC = "topic"
    BOTH = "both"
    """Set for a topic, it overrides the broker's value, which may have another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """Another name of a setting, often in a larger unit, as `log.retention.hours` is of
    `log.retention.ms`; it counts when the setting itself is absent."""

    name: str
    factor: int
    """The number of the setting's own units in one unit of the alias."""
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A row of the table."""

    name: str
    """The name in topics, where topics have the setting."""
    type: SettingType
    default: SettingValue = None
    doc: str
    scope: Scope = Scope.BROKER
    broker_name: str = ""
    """The name in `server.properties`; empty when it is the same as `name`."""
    aliases: tuple[Alias, ...] = ()
    """Further names in `server.properties`; the first that is present counts."""
    minimum: float | None = None
    """Inclusive."""
    maximum: float | None = None
    """Inclusive."""
    choices: tuple[str, ...] = ()
    """The allowed values of a string, or of each item of a list; empty: any."""
    item_pattern: str = ""
    """A regular expression that each item of a list matches as a whole; empty: any."""
    form: str = ""
    """The form of a string, or of each item of a list, in words."""
    may_be_empty: bool = True
    """Whether a string may be empty."""
    read: Callable[[str], str] | None = None
    """For a string with a grammar of its own: returns it in its usual form; ConfigError says what
    is wrong with it."""
    unit: str = ""
    required: bool = False
    """True when the setting has no default."""
    live: bool = False
    """True when a running broker takes a new value, for settings of brokers only. See
    `changes_live`."""
    per_listener: bool = False
    """Whether a listener may have a value of its own."""
    per_mechanism: bool = False
    """Whether each SASL mechanism of a listener may have a value of its own."""
    live_per_listener: bool = False
    """True when a running broker takes a new value for one of its listeners."""
    without_effect: str = ""
    """Why it has no effect; empty for a setting that has one."""
    default_only: bool = False
    """Whether only the default is taken, or nothing where there is none."""

    @property
    def broker_key(self) -> str:
        return self.broker_name or self.name

    @property
    def for_topics(self) -> bool:
        return self.scope is not Scope.BROKER

    @property
    def for_brokers(self) -> bool:
        return self.scope is not Scope.TOPIC

    @property
    def changes_live(self) -> bool:
        """Return True when a running broker takes a new value. It takes one of each setting that
        topics may override, since each log reads these anew."""
        return self.live or self.for_topics

    @property
    def allowed(self) -> str:
        """Return the allowed values in words: `a whole number from 1 to 10 (ms)`."""
        if self.default_only:
            default = self.format(self.default)
            return f"{'absent' if default is None else default}: {self.without_effect}"
        unit = f" ({self.unit})" if self.unit else ""
        match self.type:
            case SettingType.BOOLEAN:
                return "true or false"
            case SettingType.INT | SettingType.LONG:
                return f"a whole number{self._range()}{unit}"
            case SettingType.DOUBLE:
                return f"a number{self._range()}{unit}"
            case SettingType.STRING:
                return self.form or self._string_form()
            case SettingType.PASSWORD:
                return "a text that is not empty"
            case SettingType.LIST:
                items = ", ".join(self.choices) or self.form
                return f"a comma-separated list of: {items}" if items else "a comma-separated list"

    def _string_form(self) -> str:
        if len(self.choices) > 2:
            return f"one of {', '.join(self.choices)}"
        if self.choices:
            return " or ".join(self.choices)
        return "a text" if self.may_be_empty else "a text that is not empty"

    def parse(self, text: str, *, key: str = "") -> SettingValue:
        """Return the value of `text`; `key` is the name for the error."""
        if self.read is not None:
            try:
                return self.read(text)
            except ConfigError as error:
                raise ConfigError(f"{key or self.name}: {error}") from None
        value = self.value_of(text)
        if value is None:
            shown = HIDDEN if self.type is SettingType.PASSWORD else text
            raise ConfigError(f"{key or self.name}={shown}: must be {self.allowed}")
        return value

    def value_of(self, text: str) -> SettingValue:
        """Return the value of `text`; None where it is not allowed."""
        if self.read is not None:
            try:
                return self.read(text)
            except ConfigError:
                return None
        value = self._parsed(text.strip())
        if value is None or not self._in_range(value):
            return None
        return None if self.default_only and value != self.default else value

    def format(self, value: SettingValue) -> str | None:
        """Format a value as `parse` reads it; None stays None, and a secret becomes None."""
        match value:
            case None | Secret():
                return None
            case bool():
                return "true" if value else "false"
            case tuple():
                return ",".join(value)
            case _:
                return str(value)

    def _parsed(self, text: str) -> SettingValue:
        match self.type:
            case SettingType.BOOLEAN:
                return {"true": True, "false": False}.get(text.lower())
            case SettingType.INT | SettingType.LONG:
                return _number(int, text)
            case SettingType.DOUBLE:
                return _number(float, text)
            case SettingType.STRING:
                is_allowed = text in self.choices if self.choices else text or self.may_be_empty
                return text if is_allowed else None
            case SettingType.PASSWORD:
                return Secret(text) if text else None
            case SettingType.LIST:
                items = tuple(item.strip() for item in text.split(",")) if text else ()
                return items if all(map(self._is_item, items)) else None

    def _is_item(self, item: str) -> bool:
        if not item or (self.choices and item not in self.choices):
            return False
        return not self.item_pattern or re.fullmatch(self.item_pattern, item) is not None

    def _in_range(self, value: SettingValue) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True
        # The comparison is written so that NaN is outside.
        return self._minimum() <= value <= self.largest

    def _minimum(self) -> float:
        if self.minimum is not None:
            return self.minimum
        return -LONG_MAX - 1 if self.type is SettingType.LONG else -INT_MAX - 1

    @property
    def largest(self) -> float:
        """Return the largest value, by range or by type."""
        if self.maximum is not None:
            return self.maximum
        return LONG_MAX if self.type is SettingType.LONG else INT_MAX

    def _range(self) -> str:
        if self.maximum is not None:
            return f" from {self._minimum()} to {self.maximum}"
        return f", {self.minimum} or more" if self.minimum is not None else ""


_TYPES = {
    "bool": SettingType.BOOLEAN,
    "double": SettingType.DOUBLE,
    "int": SettingType.INT,
    "list": SettingType.LIST,
    "long": SettingType.LONG,
    "password": SettingType.PASSWORD,
    "str": SettingType.STRING,
}
_FLAGS = (
    "required",
    "live",
    "listener",
    "live-listener",
    "mechanism",
    "not-empty",
    "only",
    "never",
)
_OPTIONS = {"min", "max", "unit", "choices", "items", "alias"}


def settings_of(table: str) -> tuple[Setting, ...]:
    """Read a table in text: a line a setting, below it, indented, what the setting does and, after
    `Allowed: `, the form of its value. Lines with # are comments, as is what follows "  # "."""
    rows: list[list[str]] = []
    for line in table.splitlines():
        words = line.partition("  # ")[0]
        if words.startswith("    "):
            rows[-1].append(words.strip())
        elif words and not words.startswith("#"):
            rows.append([words])
    return tuple(setting_of(row, " ".join(doc)) for row, *doc in rows)


def setting_of(row: str, text: str) -> Setting:
    """Read a row: NAME TYPE DEFAULT and then flags and options, of which aliases are
    `NAME:FACTOR:UNIT,…`. The name is that of brokers, or `BROKERS=TOPICS`, `SAME=`, `=TOPICS`;
    the default - is none, () no items, max the largest."""
    name, kind, default, *rest = row.split()
    options = {key: value for key, _, value in (each.partition("=") for each in rest)}
    unknown = options.keys() - _FLAGS - _OPTIONS
    assert not unknown, (name, unknown)
    of_brokers, for_both, of_topics = name.partition("=")
    minimum, maximum = options.get("min"), options.get("max")
    doc, _, form = text.partition(" Allowed: ")
    setting = Setting(
        name=of_topics or of_brokers,
        broker_name=of_brokers if of_topics else "",
        scope=(Scope.BOTH if of_brokers else Scope.TOPIC) if for_both else Scope.BROKER,
        type=_TYPES[kind],
        doc=doc,
        form=form,
        aliases=tuple(map(_alias, _items(options.get("alias")))),
        minimum=None if minimum is None else _limit(minimum),
        maximum=None if maximum is None else _limit(maximum),
        choices=_items(options.get("choices")),
        item_pattern=options.get("items", ""),
        unit=options.get("unit", "").replace("_", " "),
        may_be_empty="not-empty" not in options,
        required="required" in options,
        live="live" in options,
        per_listener="listener" in options,
        per_mechanism="mechanism" in options,
        live_per_listener="live-listener" in options,
        default_only="only" in options or "never" in options,
    )
    return replace(setting, default=_default(setting, default))


def _default(setting: Setting, text: str) -> SettingValue:
    if text == "-":
        return None
    if text == "()":
        return ()
    if setting.type in (SettingType.INT, SettingType.LONG):
        return int(setting.largest) if text == "max" else int(_limit(text))
    value = replace(setting, default_only=False).value_of(text)
    assert value is not None, setting.name
    return value


def _limit(text: str) -> float:
    if "." in text:
        return float(text)
    number, _, shift = text.partition("<<")
    return int(number) << int(shift or 0)


def _items(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(text.split(","))


def _alias(text: str) -> Alias:
    name, _, rest = text.partition(":")
    factor, _, unit = rest.partition(":")
    return Alias(name=name, factor=int(factor or 1), unit=unit)


def unknown_key_error(key: str, known: Iterable[str], *, what: str) -> ConfigError:
    """Return the error for a key that is in no table; it suggests the nearest key."""
    near = nearest_key(key, known)
    hint = f", did you mean '{near}'?" if near else ""
    return ConfigError(f"there is no {what} '{key}'{hint}")


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """Return the known key that is most like `key`, if one is near."""
    # Only for a name that is wrong: no other start of a process has a use for it.
    import difflib

    near = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.6)
    return near[0] if near else None


def _number(kind: type[int] | type[float], text: str) -> int | float | None:
    # Python also accepts 1_000 and digits of other scripts; other readers of the file do not.
    if "_" in text or not text.isascii():
        return None
    try:
        return kind(text)
    except ValueError:
        return None
