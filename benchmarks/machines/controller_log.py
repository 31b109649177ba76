"""What a controller has written into its log about the brokers that it knows and its elections."""

import re
from datetime import datetime
from typing import NamedTuple

_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ")
_KNOWN = re.compile(r"controller (?:loaded|has) brokers=\[([\d, ]*)\]")
_ELECTED = "elect partition="


class Noticed(NamedTuple):
    """When a controller knew what, in seconds since 1970."""

    first_s: float
    """It had noticed the first of the lost brokers, or that it is the controller."""
    last_s: float
    """It had noticed the last of them."""
    elected_s: float
    """It decided on its last change of a leader or of in-sync replicas so far."""


def noticed(log: str, lost: frozenset[int]) -> Noticed | None:
    """Return when the loss of those brokers was noticed, by what the log says since it; None where
    the log, or the controller, does not know it yet."""
    first_s = last_s = elected_s = 0.0
    for line in log.splitlines():
        stamp = _TIME.match(line)
        if stamp is None:
            continue
        if known := _KNOWN.search(line):
            at_s = _seconds(stamp[1])
            brokers = {int(each) for each in known[1].split(", ") if each}
            if lost - brokers:
                first_s = first_s or at_s
                if not lost & brokers:
                    last_s = last_s or at_s
        elif first_s and _ELECTED in line:
            elected_s = _seconds(stamp[1])
    return Noticed(first_s, last_s, max(elected_s, last_s)) if last_s else None


def _seconds(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").timestamp()
