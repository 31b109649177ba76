"""The partitions that the source reads: `subscribe`, `subscribePattern` or `assign`."""

import re
from dataclasses import dataclass
from typing import TypeAlias

from connector.errors import OptionError
from connector.options.given_options import GivenOptions, bad_option
from connector.options.offset_specs import parse_assign, parse_topics
from storage_engine.core.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribedTopics:
    """All partitions of these topics, also those that are added later."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPattern:
    """All partitions of all topics whose whole name matches."""

    regex: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPartitions:
    """The user names the partitions to read."""

    partitions: tuple[TopicPartition, ...]


Subscription: TypeAlias = SubscribedTopics | TopicPattern | AssignedPartitions


def parse_subscription(given: GivenOptions) -> Subscription:
    """OptionError unless exactly one of the three options is set."""
    names = ("subscribe", "assign", "subscribePattern")
    chosen = [name for name in names if given.text(name) is not None]
    if len(chosen) != 1:
        said = " and ".join(f"'{name}'" for name in chosen) or "none"
        raise OptionError(
            "MISSING_OPTION" if not chosen else "BAD_OPTION",
            f"exactly one of 'subscribe', 'assign' and 'subscribePattern' must be set, not {said}",
        )
    text = given.text(chosen[0]) or ""
    match chosen[0]:
        case "subscribe":
            return SubscribedTopics(names=parse_topics("subscribe", text))
        case "assign":
            return AssignedPartitions(partitions=parse_assign("assign", text))
    try:
        re.compile(text)
    except re.error as error:
        raise bad_option("subscribePattern", f"a regular expression ({error})", text) from None
    return TopicPattern(regex=text)
