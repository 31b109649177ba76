"""The systemd units of a machine's brokers, which systemd itself checks where it is installed."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from storage_engine.tests.tools.local.machine.made_layout import NEW, laid_out
from storage_engine.tools.local.machine.units import (
    TARGET,
    UnitPlace,
    quoted,
    starts,
    unit_files,
    unit_name,
)

LAYOUT = laid_out(replace(NEW, cores=2))
PLACE = UnitPlace(
    directory="/var/lib/headrace", python="/usr/bin/python3", package_root="/opt", run_as="daemon"
)


def options(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_each_broker_has_a_unit_and_the_target_wants_them_all():
    files = unit_files(LAYOUT, PLACE)
    names = [unit_name(broker) for broker in LAYOUT.brokers]
    assert list(files) == [*names, TARGET]
    assert options(files[TARGET])["Wants"] == " ".join(names)


def test_a_broker_keeps_to_its_core_its_memory_and_its_folders():
    broker = LAYOUT.brokers[1]
    found = options(unit_files(LAYOUT, PLACE)[unit_name(broker)])
    assert found["CPUAffinity"] == str(broker.cpu)
    assert found["MemoryMax"] == f"{LAYOUT.broker_memory_mib}M"
    assert int(found["MemoryHigh"].rstrip("M")) < LAYOUT.broker_memory_mib
    assert found["User"] == "daemon"
    written = found["ReadWritePaths"].split()
    assert written == ["/var/lib/headrace/broker-1001", *broker.log_dirs]


def test_what_a_dead_broker_leaves_behind_is_not_killed_with_it():
    found = options(unit_files(LAYOUT, PLACE)[unit_name(LAYOUT.brokers[0])])
    assert found["KillMode"] == "process"
    assert found["OOMPolicy"] == "continue"
    assert found["Restart"] == "on-failure"


def test_units_of_a_user_ask_for_nothing_that_takes_roots_rights():
    text = unit_files(LAYOUT, replace(PLACE, run_as=None))[unit_name(LAYOUT.brokers[0])]
    found = options(text)
    assert not {"User", "ProtectSystem", "PrivateTmp", "CapabilityBoundingSet"} & set(found)
    assert found["NoNewPrivileges"] == "yes"


def test_a_unit_is_known_by_the_settings_that_it_runs():
    text = unit_files(LAYOUT, PLACE)[unit_name(LAYOUT.brokers[0])]
    assert starts(text, "/var/lib/headrace/broker-1000/server.properties")
    assert not starts(text, "/lib/headrace/broker-1000/server.properties")
    assert not starts(text, "/var/lib/headrace/broker-1001/server.properties")


def test_words_that_systemd_would_read_otherwise_are_quoted():
    assert quoted("/a-b_c/d.e") == "/a-b_c/d.e"
    assert quoted("/a b") == '"/a b"'
    assert quoted('/a"b') == '"/a\\"b"'
    assert quoted("/100%") == '"/100%%"'


@pytest.mark.parametrize("run_as", ["daemon", None])
def test_systemd_takes_them(tmp_path, run_as, monkeypatch):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze checks the units: install Debian's package systemd")
    place = replace(PLACE, directory=str(tmp_path), run_as=run_as, python=shutil.which("true"))
    for name, text in unit_files(LAYOUT, place).items():
        (tmp_path / name).write_text(text)
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    command = [program, "verify", "--man=no", *(["--user"] if run_as is None else [])]
    units = sorted(tmp_path.glob("headrace-*"))
    done = subprocess.run([*command, *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_takes_the_unit_of_zookeeper(tmp_path):
    """The sample's, with a user and a program that are here."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze checks the units: install Debian's package systemd")
    sample = Path(__file__).parents[5] / "conf" / "systemd" / "headrace-zookeeper.service"
    text = sample.read_text().replace("/opt/headrace/bin/headrace", shutil.which("true"))
    unit = tmp_path / sample.name
    unit.write_text(text.replace("User=headrace", "User=daemon"))
    done = subprocess.run(
        [program, "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
