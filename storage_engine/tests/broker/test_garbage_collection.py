"""Collections pass by what was loaded before, and free later cycles."""

import subprocess
import sys

PROGRAM = """
import gc, weakref
from storage_engine.broker.garbage_collection import collect_seldom

class Cycle:
    def __init__(self):
        self.itself = self

loaded = Cycle()
collect_seldom()
old, new = weakref.ref(loaded), weakref.ref(Cycle())
del loaded
gc.collect()
assert new() is None
assert old() is not None
often, _, rarely = gc.get_threshold()
assert often == 700 and rarely >= 1000
"""


def test_what_is_loaded_by_then_is_looked_at_no_more() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)
