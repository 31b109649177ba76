"""Checks whether brokers serve.

A broker is up when it itself answers Metadata with the whole cluster in it.

Each broker is asked over a connection of its own, since the metadata of one broker does not show
whether the others serve.
"""

import socket
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.client_settings import connect
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.cluster_file import BrokerEntry

ASK_TIMEOUT_MS = 2_000
"""A broker that is up answers within milliseconds; one that starts refuses at once."""

_CONNECT_TIMEOUT_S = 1.0
_POLL_S = 0.05


def ask_metadata(
    entry: BrokerEntry, *, topics: Sequence[str] | None, config: Path | None = None
) -> ClusterMetadata:
    """Metadata of that very broker, of `topics` (None: all); HeadraceError when there is none.
    `config`: the settings of a client that may see them; None for a cluster that is open."""
    try:
        # The client goes on trying a broker that refuses connections; here that is the answer.
        socket.create_connection((entry.host, entry.port), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise CommandError(f"{entry.address}: {error.strerror or error}") from None
    with connect(
        entry.address, config, request_timeout_ms=ASK_TIMEOUT_MS, deadline_ms=ASK_TIMEOUT_MS
    ) as cluster:
        return cluster.metadata(topics)


def wait_until_serving(
    entries: Sequence[BrokerEntry],
    *,
    expected: Collection[int],
    timeout_s: float,
    check_alive: Callable[[], None],
    progress: Callable[[str], None],
    config: Path | None = None,
    recovery_of: Callable[[BrokerEntry], str | None] = lambda entry: None,
) -> None:
    """Return when each of `entries` serves Metadata with all `expected` brokers and a controller.

    `check_alive` raises when waiting has become pointless. `recovery_of` says how far a broker's
    recovery is. CommandError after `timeout_s` without progress, with what is missing.
    """
    deadline = time.monotonic() + timeout_s
    waiting = list(entries)
    missing = ""
    # What an earlier run left in the log is no progress.
    reported = {entry.id: recovery_of(entry) for entry in entries}
    while waiting:
        check_alive()
        entry = waiting[0]
        problem = _problem(entry, frozenset(expected), config)
        if problem is None:
            progress(f"broker {entry.id} serves on {entry.address}")
            waiting.pop(0)
            continue
        for recovering in waiting:
            line = recovery_of(recovering)
            if line != reported[recovering.id]:
                reported[recovering.id] = line
                if line is not None:
                    deadline = time.monotonic() + timeout_s
                    progress(f"broker {recovering.id}: {line}")
        missing = f"broker {entry.id} on {entry.address} {problem}"
        if time.monotonic() >= deadline:
            raise CommandError(f"not up after {timeout_s:.0f} s: {missing}")
        time.sleep(_POLL_S)


def _problem(entry: BrokerEntry, expected: frozenset[int], config: Path | None) -> str | None:
    """Says what is missing until the broker serves; None when nothing is."""
    try:
        view = ask_metadata(entry, topics=[], config=config)
    except HeadraceError as error:
        return f"does not answer ({error})"
    absent = sorted(expected - set(view.brokers))
    if absent:
        return f"does not know broker {', '.join(map(str, absent))} yet"
    if view.controller_id not in view.brokers:
        return "knows no controller yet"
    return None
