"""The options that name the tables of topics: what retention took from a log is read there.

    table=LOCATION           of the only topic
    table.TOPIC=LOCATION     of one of several topics; Spark gives options in lower case
    table.root=LOCATION      the root of the lake, below which tables are as their topics say
    table.store.NAME=VALUE   options of the object store, as `deltalake` has them
    table=none               logs alone, without a remark about tables

A location comes from the query and never from a topic alone: whoever may create a topic chooses its
settings, and the query's credentials are not theirs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from connector.errors import OptionError
from connector.options.given_options import GivenOptions, bad_option
from connector.options.option_table import TABLE_PREFIX

ROOT = "root"
STORE_PREFIX = "store."
NO_TABLE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Where the tables of topics are."""

    single: str | None = None
    """The location of the table of the only topic."""
    by_topic: Mapping[str, str] = field(default_factory=dict)
    """By topic, in lower case."""
    root: str | None = None
    store: Mapping[str, str] = field(default_factory=dict, repr=False)

    def location_of(self, topic: str, topics: "set[str]") -> str | None:
        """The location that the options give the table of `topic`, one of all `topics` that are
        read; None: they don't. OptionError where they don't tell tables apart."""
        if self.single is not None:
            if len(topics) > 1:
                raise OptionError(
                    "BAD_OPTION",
                    f"'table' is the table of one topic, and {', '.join(sorted(topics)[:3])} are "
                    "read: name each with table.TOPIC, or their root with table.root",
                )
            return self.single
        if sum(each.lower() == topic.lower() for each in topics) > 1:
            raise OptionError(
                "BAD_OPTION",
                f"'{TABLE_PREFIX}{topic}' names topics that differ in case alone: read them apart",
            )
        return self.by_topic.get(topic.lower())


def parse_tables(given: GivenOptions, *, isolation_level: str) -> TableOptions | None:
    """The tables; None where none is named. OptionError."""
    single = given.text("table")
    named = given.with_prefix(TABLE_PREFIX)
    store = {
        name.removeprefix(STORE_PREFIX): text
        for name, text in named.items()
        if name.startswith(STORE_PREFIX)
    }
    locations = {name: text for name, text in named.items() if not name.startswith(STORE_PREFIX)}
    root = locations.pop(ROOT, None)
    if single is not None and (locations or root is not None):
        raise OptionError(
            "BAD_OPTION", "'table' contradicts table.root and table.TOPIC: leave it out"
        )
    if single is not None and single.strip().lower() == NO_TABLE:
        return None
    for name, text in (("table", single), (f"{TABLE_PREFIX}{ROOT}", root)):
        _check_location(name, text)
    for name, text in locations.items():
        _check_location(f"{TABLE_PREFIX}{name}", text)
    if single is None and root is None and not locations:
        if store:
            raise OptionError(
                "MISSING_OPTION",
                f"'{TABLE_PREFIX}{STORE_PREFIX}{min(store)}' needs a table: set table, "
                "table.TOPIC or table.root",
            )
        return None
    if isolation_level != "read_committed":
        raise OptionError(
            "BAD_OPTION",
            "a table holds records of committed transactions only, so isolationLevel="
            f"{isolation_level} can't be had of it: leave out isolationLevel, or the table",
        )
    return TableOptions(single=single, by_topic=locations, root=root, store=store)


def is_without_remark(given: GivenOptions) -> bool:
    """Whether the user has said that the log alone is read."""
    return (given.text("table") or "").strip().lower() == NO_TABLE


def _check_location(name: str, text: str | None) -> None:
    if text is not None and not (text.startswith("/") or "://" in text):
        raise bad_option(name, "an absolute path or a URL", text)
