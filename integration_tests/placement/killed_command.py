"""A command that moves replicas, and dies at a chosen moment."""

import signal
import sys

from integration_tests.forks.forked import run

MOMENTS = ("wave", "election", "state", "cordon")
"""Before or after a step of the command."""

KILLED = """
import os, signal, sys
from storage_engine.tools.cli import main
from storage_engine.tools.placement import executor
from storage_engine.tools.commands.placement import drain, rebalance

moment, turn, side, *arguments = sys.argv[1:]
owners, name = {
    "wave": ([executor], "begin"),
    "election": ([executor], "elect_leaders"),
    "state": ([drain, rebalance], "write_state"),
    "cordon": ([drain], "set_cordons"),
}[moment]
work, left = getattr(owners[0], name), [int(turn)]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def fatal(*args, **kwargs):
    left[0] -= 1
    if not left[0] and side == "before":
        die()
    result = work(*args, **kwargs)
    if not left[0]:
        die()
    return result

for owner in owners:
    setattr(owner, name, fatal)
sys.exit(main(arguments))
"""


def run_and_kill(moment: str, turn: int, side: str, *arguments: object) -> None:
    """`headrace` with these arguments, which dies `before` or `after` the step for the `turn`th
    time."""
    command = [sys.executable, "-c", KILLED, moment, str(turn), side, *map(str, arguments)]
    assert run(command).returncode == -signal.SIGKILL, moment
