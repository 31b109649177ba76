"""Fuzzes one target by coverage, with atheris: `python -m storage_engine.tests.fuzz.by_coverage
TARGET [options of libFuzzer] FOLDERS`. What it finds ends it with a stack trace, and the input is
in a file."""

import sys

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
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
