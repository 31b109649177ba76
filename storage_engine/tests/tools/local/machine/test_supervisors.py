"""Who runs a machine's brokers: systemd where their units are installed, else we."""

from dataclasses import replace
from pathlib import Path

import pytest

from storage_engine.core.errors import HeadraceError
from storage_engine.tests.tools.local.machine.made_layout import NEW, laid_out
from storage_engine.tools.local.broker_process import StopOutcome
from storage_engine.tools.local.machine.supervisors import supervisor_of
from storage_engine.tools.local.machine.units import UnitPlace, unit_files, unit_name

LAYOUT = laid_out(replace(NEW, cores=2))
FIRST = LAYOUT.brokers[0]


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    found = {name: tmp_path / name for name in ("system", "user", "machine")}
    for folder in found.values():
        folder.mkdir()
    return found


def supervisor(folders: dict[str, Path]):
    return supervisor_of(
        folders["machine"], LAYOUT, system_units=folders["system"], of_user=folders["user"]
    )


def install(folder: Path, machine: Path) -> None:
    place = UnitPlace(directory=str(machine), python="/p", package_root="/r", run_as=None)
    for name, text in unit_files(LAYOUT, place).items():
        (folder / name).write_text(text)


def test_without_units_brokers_are_processes(folders):
    assert supervisor(folders).name == "processes"


def test_units_of_another_directory_do_not_count(folders, tmp_path):
    install(folders["system"], tmp_path / "other")
    assert supervisor(folders).name == "processes"


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch) -> Path:
    """A program of that name that writes down what it is asked, and fails for `start` if told
    to."""
    asked = tmp_path / "asked"
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {asked}\n'
        'case "$*" in *start*) if [ -n "$FAILS" ]; then echo "Unit is masked." >&2; exit 1; fi;; '
        "esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return asked


@pytest.mark.parametrize(("where", "option"), [("system", ""), ("user", "--user ")])
def test_units_that_are_installed_are_started_and_stopped(folders, systemctl, where, option):
    install(folders[where], folders["machine"])
    found = supervisor(folders)
    assert found.name == "systemd"
    found.start(FIRST)
    assert found.find(FIRST) is None
    assert found.stop(FIRST, timeout_s=1) is StopOutcome.NOT_RUNNING
    name = unit_name(FIRST)
    assert systemctl.read_text().splitlines() == [
        f"{option}reset-failed {name}",
        f"{option}start {name}",
        f"{option}stop {name}",
    ]
    assert found.last_words(FIRST) == f"see journalctl {option}-u {name}"


def test_what_systemctl_complains_of_is_told(folders, systemctl, monkeypatch):
    install(folders["system"], folders["machine"])
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(HeadraceError) as caught:
        supervisor(folders).start(FIRST)
    assert str(caught.value) == f"systemctl start {unit_name(FIRST)}: Unit is masked."


def test_a_broker_without_a_unit_among_others_with_one_is_told(folders):
    install(folders["system"], folders["machine"])
    (folders["system"] / unit_name(FIRST)).unlink()
    with pytest.raises(HeadraceError, match="systemd has no unit yet for broker 1000"):
        supervisor(folders)
