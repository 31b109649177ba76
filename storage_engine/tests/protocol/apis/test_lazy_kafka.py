"""The package `kafka` without its clients, on several threads: two that import its parts at once
never wait for each other for ever. Another package stands for it."""

import subprocess
import sys
from pathlib import Path

import pytest

LONG_S = 20
FILES = {
    "events.py": """
import threading
slow_begins, init_runs, go_on = threading.Event(), threading.Event(), threading.Event()
runs = []
""",
    "put_off_sample/__init__.py": """
import events
events.runs.append(1)
events.init_runs.set()
from put_off_sample.slow import THING
""",
    "put_off_sample/slow.py": """
import events
events.slow_begins.set()
events.go_on.wait()
from put_off_sample import errors
THING = errors.NUMBER
""",
    "put_off_sample/errors.py": "NUMBER = 7",
    "at_once.py": """
import importlib, sys, threading
import events
from storage_engine.protocol.apis import lazy_kafka
lazy_kafka.PACKAGE = "put_off_sample"
lazy_kafka.put_off_clients()
found = []
part = threading.Thread(
    target=lambda: found.append(importlib.import_module("put_off_sample.slow").THING)
)
client = threading.Thread(target=lambda: found.append(sys.modules["put_off_sample"].THING))
part.start()
events.slow_begins.wait()
client.start()
events.init_runs.wait()  # It waits for the part from now on.
events.go_on.set()
part.join()
client.join()
print(found, len(events.runs))
""",
    "one_by_one.py": """
import sys
import events
from storage_engine.protocol.apis import lazy_kafka
events.go_on.set()
lazy_kafka.PACKAGE = "put_off_sample"
lazy_kafka.put_off_clients()
package = sys.modules["put_off_sample"]
print(package.errors.NUMBER, hasattr(package, "__wrapped__"), len(events.runs))
print(package.THING, hasattr(package, "Nothing"), package.THING, len(events.runs))
""",
}


@pytest.mark.parametrize(
    ("script", "told"),
    [("at_once.py", "[7, 7] 1"), ("one_by_one.py", "7 False 0\n7 False 7 1")],
    ids=["that two threads import at once", "that is asked for parts, then for a client"],
)
def test_a_package_whose_clients_are_put_off_keeps_no_thread_waiting_and_gives_all_names(
    tmp_path: Path, script: str, told: str
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, str(tmp_path / script)],
        env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[4]}"},
        capture_output=True,
        text=True,
        timeout=LONG_S,
    )
    assert done.stdout.strip() == told, done.stderr
