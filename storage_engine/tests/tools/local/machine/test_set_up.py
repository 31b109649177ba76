"""`headrace machine init`: what it writes, keeps and refuses."""

import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from storage_engine.core.errors import HeadraceError
from storage_engine.tools.local.broker_settings import read_settings
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.tools.local.machine import machine_file, set_up
from storage_engine.tools.local.machine.layout import LayoutRequest
from storage_engine.tools.local.machine.set_up import InitRequest, InitResult, initialize
from storage_engine.tools.local.secret_files import write_whole

HOST = "127.0.0.1"


@pytest.fixture
def request_(tmp_path: Path) -> InitRequest:
    """Of a machine with two brokers on two folders, and a ZooKeeper that is away."""
    for name in ("d1", "d2"):
        (tmp_path / name).mkdir()
    return InitRequest(
        directory=tmp_path / "machine",
        layout=LayoutRequest(
            host=HOST,
            cores=2,
            disks=(str(tmp_path / "d1"), str(tmp_path / "d2")),
            zookeeper=f"{HOST}:1",
            first_id=5_000,
            base_port=find_free_port(HOST),
            has_shared_disks=True,
            has_shared_cores=True,
        ),
        settings={},
    )


@pytest.fixture(autouse=True)
def no_wait_for_zookeeper(monkeypatch):
    monkeypatch.setattr(set_up, "_ZOOKEEPER_TIMEOUT_MS", 200)


def done(request_: InitRequest) -> InitResult:
    return initialize(request_, lambda _line: None)


def refused(request_: InitRequest) -> str:
    with pytest.raises(HeadraceError) as caught:
        done(request_)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_layout(request_: InitRequest, **changes: object) -> InitRequest:
    return replace(request_, layout=replace(request_.layout, **changes))


def test_every_broker_has_settings_a_log_directory_and_a_unit(request_, tmp_path):
    result = done(with_layout(request_, rack="z1"))
    assert result.added == (5_000, 5_001)
    folder = request_.directory
    for number, broker in enumerate(result.layout.brokers):
        settings = read_settings(folder / broker.config)
        assert settings["broker.id"] == str(5_000 + number)
        assert settings["broker.rack"] == "z1"
        assert settings["broker.host.name"] == HOST
        assert settings["listeners"] == f"PLAINTEXT://{HOST}:{broker.port}"
        assert settings["log.dirs"] == f"{tmp_path}/d{number + 1}/headrace/broker-{5_000 + number}"
        assert settings["min.insync.replicas"] == "2"
        assert Path(settings["log.dirs"]).is_dir()
        assert (folder / "units" / f"headrace-broker-{broker.id}.service").exists()
    assert (folder / "units" / "headrace-brokers.target").exists()
    assert machine_file.read(folder) == result.layout
    assert any("was not checked" in warning for warning in result.warnings)
    assert result.units_checked == (shutil.which("systemd-analyze") is not None)
    install, enable = result.install_commands
    assert install == f"sudo install -m 644 -t /etc/systemd/system {folder}/units/*"
    assert enable.endswith("enable --now headrace-brokers.target")


def test_what_a_person_changed_stays_when_a_core_is_added(request_):
    before = done(request_).layout
    config = request_.directory / before.brokers[0].config
    config.write_text(config.read_text() + "num.partitions=7\n")
    result = done(with_layout(request_, cores=3))
    assert result.added == (5_002,)
    assert result.layout.brokers[:2] == before.brokers
    assert read_settings(config)["num.partitions"] == "7"
    again = done(replace(request_, layout=LayoutRequest()))
    assert again.added == ()
    assert again.layout == result.layout


def test_common_settings_reach_all_brokers_also_later_ones(request_):
    done(replace(request_, settings={"num.partitions": "5"}))
    layout = done(with_layout(request_, cores=3)).layout
    for broker in layout.brokers:
        assert read_settings(request_.directory / broker.config)["num.partitions"] == "5"


SESSION = "zookeeper.session.timeout.ms"


def test_a_new_machine_has_short_sessions(request_):
    broker = done(request_).layout.brokers[0]
    assert read_settings(request_.directory / broker.config)[SESSION] == "2500"


def test_sessions_that_were_chosen_stay(request_):
    done(replace(request_, settings={SESSION: "4000"}))
    layout = done(with_layout(request_, cores=3)).layout
    for broker in layout.brokers:
        assert read_settings(request_.directory / broker.config)[SESSION] == "4000"


def test_a_machine_without_that_choice_keeps_its_sessions(request_):
    done(request_)
    (request_.directory / "common.properties").write_text("num.partitions=5\n")
    added = done(with_layout(request_, cores=3)).layout.brokers[2]
    assert SESSION not in read_settings(request_.directory / added.config)


def test_a_command_that_was_killed_is_run_again(request_, monkeypatch):
    """After each file that it writes: what it had begun is found."""
    for count in range(12):
        written: list[Path] = []

        def dies(path, content, *, mode=0o600, written=written, count=count):
            if len(written) == count:
                raise KeyboardInterrupt
            written.append(path)
            write_whole(path, content, mode=mode)

        with monkeypatch.context() as patch:
            patch.setattr(set_up, "write_whole", dies)
            patch.setattr(machine_file, "write_whole", dies)
            try:
                done(request_)
            except KeyboardInterrupt:
                continue
            break
    else:
        pytest.fail("it writes more files than this test knows of")
    assert count > 4
    layout = done(request_).layout
    assert [broker.id for broker in layout.brokers] == [5_000, 5_001]
    for broker in layout.brokers:
        assert (request_.directory / broker.config).exists()


def test_nothing_is_written_where_something_is_wrong(request_, tmp_path):
    mistakes = [
        (with_layout(request_, host="192.0.2.1"), "no address of this machine"),
        (with_layout(request_, disks=(str(tmp_path / "d3"),)), "mount the disk there"),
        (with_layout(request_, has_shared_disks=False), "is no mount point"),
        (with_layout(request_, cores=90, has_shared_cores=False), "this machine has"),
        (replace(request_, settings={"num.partition": "1"}), "num.partitions"),
        (replace(request_, settings={"broker.id": "1"}), "--first-id decides it"),
        (replace(request_, settings={"advertised.listeners": "x"}), "--host decides it"),
        (with_layout(request_, run_as="no-such-user"), "useradd --system no-such-user"),
        (replace(request_, directory=tmp_path / "a b"), "without blanks"),
    ]
    for mistake, problem in mistakes:
        assert problem in refused(mistake)
        assert not (mistake.directory / "machine.json").exists()
        assert list((tmp_path / "d1").iterdir()) == []


def test_a_port_in_use_is_told(request_):
    port = request_.layout.base_port + 1
    with socket.create_server((HOST, port)):
        assert refused(request_) == (
            f"port {port} of {HOST} is in use: stop the program that has it, or choose others "
            "with --base-port"
        )


def test_the_directory_of_another_machine_is_refused(request_):
    done(request_)
    error = refused(with_layout(request_, host="127.0.0.2"))
    assert f"is the layout of machine {HOST}, not of 127.0.0.2" in error


def test_a_log_directory_of_another_layout_is_refused(request_, tmp_path):
    other = tmp_path / "d1" / "headrace" / "broker-5000"
    other.mkdir(parents=True)
    (other / "meta.properties").touch()
    assert f"'{other}' has data already, of another layout" in refused(request_)


def test_an_id_that_lives_on_another_machine_is_refused(request_, monkeypatch):
    monkeypatch.setattr(
        "storage_engine.zookeeper.live_brokers.live_hosts", lambda *_: {5_001: "h9"}
    )
    assert refused(request_) == (
        "broker 5001 lives on h9 already: give --first-id, another than every other machine's"
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to others")
def test_what_root_writes_belongs_to_the_user_of_the_brokers(request_):
    layout = done(with_layout(request_, run_as="daemon")).layout
    assert done(replace(request_, layout=LayoutRequest())).layout == layout
    broker = layout.brokers[0]
    for path in (request_.directory / broker.config, Path(broker.log_dirs[0])):
        assert path.owner() == "daemon"
    unit = request_.directory / "units" / f"headrace-broker-{broker.id}.service"
    assert "User=daemon\n" in unit.read_text()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to others")
def test_root_gives_away_only_what_it_writes(request_):
    request_.directory.mkdir()
    other = request_.directory / "other"
    other.touch()
    done(with_layout(request_, run_as="daemon"))
    assert other.owner() == request_.directory.owner() == "root"


def test_units_that_systemd_does_not_take_are_told(request_, tmp_path, monkeypatch):
    analyze = tmp_path / "systemd-analyze"
    analyze.write_text('#!/bin/sh\necho "$4:3: Unknown key" >&2\n')
    analyze.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    error = refused(request_)
    assert error.startswith("systemd-analyze does not take the units: ")


def test_without_systemd_the_units_are_not_checked_and_that_is_told(request_, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    lines: list[str] = []
    assert not initialize(request_, lines.append).units_checked
    assert lines == ["systemd-analyze is not installed here: the units were not checked"]
