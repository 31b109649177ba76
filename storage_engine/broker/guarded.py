"""Calls back, so that an exception ends that one call. Its one rule: what is guarded is told with
its trace, and whoever calls goes on with the others.

For what is called in a row, or where something would be under way for ever: answers to requests,
steps of coordinators, those who wait on a partition. A KafkaError that is expected is caught where
it is expected; here come only errors in the program.
"""

import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


FAILED = object()


def guarded(what: str, call: Callable[..., Any], *args: Any) -> Any:
    """What the call returns; FAILED when it has failed, which is told as `what`."""
    try:
        return call(*args)
    except Exception:
        log.exception("%s failed by an error in the program", what)
        return FAILED
