"""A mirror that is killed at a chosen moment."""

import signal
import sys
from collections.abc import Sequence

from integration_tests.forks.forked import run

MOMENTS = ("taken", "appended", "written", "ending", "ended", "started")
"""Before or after a step of it; besides there is "sometime"."""

KILLED = """
import os, signal, sys, threading
from storage_engine.mirror import mirror
from storage_engine.mirror import progress as mirror_progress
from storage_engine.mirror import source as mirror_source
from storage_engine.client.producer import produce
from storage_engine.client.producer import transactions
from storage_engine.tools.cli import main

moment, turn, fetch_bytes, transaction_bytes, *arguments = sys.argv[1:]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

owner, name, is_before = {
    "taken": (mirror.Mirror, "_take", True),
    "appended": (produce.BatchWriter, "append", False),
    "written": (mirror_progress.MirrorProgress, "rows", True),
    "ending": (transactions.ProducerTransactions, "end", True),
    "ended": (transactions.ProducerTransactions, "end", False),
    "started": (transactions.ProducerTransactions, "init", False),
    "sometime": (threading, "Timer", False),
}[moment]
work, left = getattr(owner, name), [int(turn)]
if moment == "sometime":
    threading.Timer(int(turn) / 1000, die).start()

def fatal(*args, **kwargs):
    left[0] -= 1
    if not left[0] and is_before:
        die()
    result = work(*args, **kwargs)
    if not left[0]:
        die()
    return result

setattr(owner, name, fatal)
mirror_source.FETCH_BYTES, mirror.TRANSACTION_BYTES = int(fetch_bytes), int(transaction_bytes)
sys.exit(main(arguments))
"""


QUICK = """
import sys
from storage_engine.mirror import mirror
from storage_engine.tools.cli import main

mirror.REFRESH_MS = 1_000
sys.exit(main(sys.argv[1:]))
"""
"""A mirror that looks for new topics more often."""


def run_and_kill(
    moment: str, turn: int, fetch_bytes: int, transaction_bytes: int, arguments: Sequence[str]
) -> None:
    """`headrace` with these arguments, which dies when the moment comes for the `turn`th time; for
    "sometime", after so many milliseconds."""
    sizes = (turn, fetch_bytes, transaction_bytes)
    command = [sys.executable, "-c", KILLED, moment, *map(str, sizes), *arguments]
    assert run(command).returncode == -signal.SIGKILL, moment
