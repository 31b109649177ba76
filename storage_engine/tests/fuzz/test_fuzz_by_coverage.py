"""Hostile input: requests of every API in every served version, and records, fuzzed by
coverage; only errors of ours leave a decoder, within processor time and memory that grow with the
input, not with its square."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage_engine.protocol.records.record_batch import Codec
from storage_engine.tests.fuzz.seeds import write_seeds
from storage_engine.tests.fuzz.targets import (
    TARGETS,
    VERSIONS,
    records_input,
    request_input,
    within_memory,
)
from storage_engine.tests.sampling import ALL_FAULTS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
_PATH = os.environ.get("PYTHONPATH")

RUNS = {"request": 1_000, "records": 200, "log_in": 2_000, "typed": 200, "avro": 200}
"""A second or two; in full five hundred times as many, with another seed each time."""
INPUT_TIMEOUT_S = 60
"""For one input: far more than any takes, also on a loaded machine."""
MEMORY_MIB = 700
"""Of the process. atheris itself loses some 200 bytes with each comparison of numpy arrays that it
watches, 3 KiB an input of records: a hundred thousand inputs leave room."""
INPUT_BYTES = 4_000
_IN_A_SHELL = ("sh", "-c", '"$@"; exit $?', "sh")
"""The kernel counts the most memory that the process had which started another as that one's, too:
a worker of pytest may have had more than the fuzzer may. A shell has little."""


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory) -> dict[str, tuple[int, Path]]:
    """The status of each target, and its folder: all in one process, since to load and watch the
    decoders takes it five seconds."""
    seed = int.from_bytes(os.urandom(3)) if ALL_FAULTS else 1
    folder = tmp_path_factory.mktemp("fuzzed")
    arguments: list[str] = []
    for target in TARGETS:
        seeds, found = folder / target / "seeds", folder / target / "found"
        seeds.mkdir(parents=True)
        found.mkdir()
        write_seeds(target, seeds)
        options = {
            "runs": _runs(target),
            "seed": seed,
            "timeout": INPUT_TIMEOUT_S,
            "rss_limit_mb": MEMORY_MIB,
            "max_len": INPUT_BYTES,
            "print_final_stats": 1,
            "artifact_prefix": f"{folder / target}/",
        }
        named = [f"-{name}={value}" for name, value in options.items()]
        arguments += ["--", target, *named, str(found), str(seeds)]
    command = [sys.executable, "-P", "-m", "storage_engine.tests.fuzz.by_coverage"]
    ended = subprocess.run(
        [*_IN_A_SHELL, *command, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), _PATH]))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-6_000:]
    told = [line.split() for line in ended.stdout.splitlines()]
    return {target: (int(status), folder / target) for target, status in told}


def _runs(target: str) -> int:
    return RUNS[target] * (500 if ALL_FAULTS else 1)


@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris has no wheel for this Python or machine",
)
@pytest.mark.parametrize("target", TARGETS)
def test_decoders_refuse_what_they_can_not_read(target, fuzzed):
    status, folder = fuzzed[target]
    told = folder.with_suffix(".log").read_text(errors="backslashreplace")[-6_000:]
    inputs = [path.read_bytes().hex() for path in folder.iterdir() if path.is_file()]
    assert status == 0, f"{inputs}\n{told}"
    # It has run, and was led by what it covered.
    assert f"Done {_runs(target)} runs" in told, told
    assert list((folder / "found").iterdir()), told


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_begun_with_is_read_or_refused(target, tmp_path):
    write_seeds(target, tmp_path)
    seeds = [path.read_bytes() for path in tmp_path.iterdir()]
    assert len(seeds) >= 10
    for seed in seeds:
        TARGETS[target](seed)


def test_a_request_costs_no_more_memory_than_its_length_allows(tmp_path):
    """As many items as fit, of the kinds that are smallest on the wire."""
    write_seeds("request", tmp_path)
    for path in tmp_path.iterdir():
        within_memory(TARGETS["request"], path.read_bytes())
    for key, version in VERSIONS:
        for filler in (b"\x00", b"\x01", b"\x02", b"\x7f"):
            within_memory(TARGETS["request"], request_input(key, version, filler * 3000))


def test_a_target_tells_of_time_and_memory_that_grow_with_the_square(monkeypatch):
    """Or the bounds would never end a run."""
    from storage_engine.tests.fuzz import targets

    def quadratic(data: bytes) -> int:
        return sum(sum(data) for _ in data)

    # A tenth of the bounds, for a quick machine takes half of the time.
    monkeypatch.setattr(targets, "BASE_S", targets.BASE_S / 10)
    monkeypatch.setattr(targets, "PER_BYTE_S", targets.PER_BYTE_S / 10)
    with pytest.raises(AssertionError, match="of the processor"):
        targets.within_time(lambda data: [quadratic(data) for _ in range(4)])(bytes(4_000))
    with pytest.raises(AssertionError, match="of memory"):
        targets.within_memory(lambda data: bytearray(len(data) ** 2), bytes(4_000))


def test_a_target_tells_of_what_is_no_error_of_ours(monkeypatch):
    """Or no finding would ever end a run."""
    from storage_engine.tests.fuzz import targets

    def broken(*_: object, **__: object) -> None:
        raise IndexError("index out of range")

    monkeypatch.setattr(targets, "spec_for", broken)
    with pytest.raises(IndexError):
        targets.request(request_input(*VERSIONS[0], b"\xff\xff" + bytes(20)))
    monkeypatch.setattr(targets, "decode_batches", broken)
    with pytest.raises(IndexError):
        targets.records(records_input(0, Codec.NONE, b"anything"))
