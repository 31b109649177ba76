"""Reads the logs of a controller: the brokers that it knows, and its elections."""

import re
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from storage_engine.tools.inspection.state_change_log import read_state_changes

_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ")
LISTED_BROKERS = re.compile(r"controller (?:loaded|has) brokers=\[([\d, ]*)\]")
_ELECTED = "elect "


class Noticed(NamedTuple):
    """When a controller knew what, in seconds since 1970."""

    first_s: float
    """It had noticed the first of the lost brokers, or that it is the controller."""
    last_s: float
    """It had noticed the last of them."""


def noticed(log: str, lost: frozenset[int]) -> Noticed | None:
    """Return when the loss of those brokers was noticed, by what the log says since it; None where
    the log, or the controller, does not know it yet."""
    first_s = last_s = 0.0
    for line in log.splitlines():
        stamp = _TIME.match(line)
        if stamp is None:
            continue
        if known := LISTED_BROKERS.search(line):
            at_s = _seconds(stamp[1])
            brokers = {int(each) for each in known[1].split(", ") if each}
            if lost - brokers:
                first_s = first_s or at_s
                if not lost & brokers:
                    last_s = last_s or at_s
    return Noticed(first_s, last_s) if last_s else None


def last_election_s(state_changes: Path, after_s: float) -> float:
    """Return when a controller last decided on a leader or on in-sync replicas, as its log of state
    changes says; `after_s` where it has not since."""
    elected = [
        change.time.timestamp()
        for change in read_state_changes(state_changes)
        if change.text.startswith(_ELECTED)
    ]
    return max([after_s, *elected])


def _seconds(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").timestamp()
