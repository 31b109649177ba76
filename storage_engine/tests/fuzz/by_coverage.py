"""Fuzzes by coverage, with atheris: `python -m storage_engine.tests.fuzz.by_coverage TARGET
[options of libFuzzer] FOLDERS [-- TARGET …]`.

Each target runs in a fork, one after the other, since to load what is watched takes longer than a
short run. What a fork writes goes to `TARGET.log` in the current folder, and its status to stdout:
a line `TARGET STATUS`. What is found ends a fork with a stack trace, and the input is in a file.
"""

import os
import sys
from itertools import groupby
from pathlib import Path

import atheris

from storage_engine.tests.sampling import ALL_FAULTS

WATCHED = ["storage_engine.protocol", "storage_engine.tests.fuzz", "storage_engine.core.security"]
WATCHED += ["storage_engine.broker.authentication", "scramp"]
if ALL_FAULTS:
    # The long tail of requests goes by kafka-python's definitions. To prepare it takes ten seconds.
    WATCHED += ["kafka.protocol", "jwt"]

with atheris.instrument_imports(include=WATCHED):
    # What is imported on first use must be imported now to be watched.
    import jwt  # noqa: F401
    import scramp  # noqa: F401

    from storage_engine.protocol.apis.registry import spec_for
    from storage_engine.tests.fuzz.targets import TARGETS, VERSIONS

    for api_key, _ in VERSIONS:
        spec_for(api_key)


def main() -> None:
    runs = [list(words) for is_end, words in groupby(sys.argv[1:], "--".__eq__) if not is_end]
    for target, *arguments in runs:
        pid = os.fork()
        if not pid:
            _fuzz(target, arguments)
        _, status = os.waitpid(pid, 0)
        print(target, os.waitstatus_to_exitcode(status), flush=True)


def _fuzz(target: str, arguments: list[str]) -> None:
    with Path(f"{target}.log").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    atheris.Setup([sys.argv[0], *arguments], TARGETS[target])
    # Ends the process.
    atheris.Fuzz()


if __name__ == "__main__":
    main()
