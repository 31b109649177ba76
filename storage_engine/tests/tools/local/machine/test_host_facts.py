"""What a machine is like, and what can't be used of it."""

import os
import socket
from pathlib import Path

import pytest

from storage_engine.core.errors import HeadraceError
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.tools.local.machine import host_facts
from storage_engine.tools.local.machine.host_facts import (
    check_disks,
    check_host,
    check_ports,
    memory_for_brokers_mib,
    usable_cpus,
)

HOST = "127.0.0.1"


def refused(check, *arguments, **options) -> str:
    with pytest.raises(HeadraceError) as caught:
        check(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_processors_and_memory_are_those_of_this_machine():
    assert len(usable_cpus()) == len(os.sched_getaffinity(0))
    assert 0 < memory_for_brokers_mib() < os.sysconf("SC_PHYS_PAGES") * 4096 >> 20


def test_folders_that_are_no_disks_are_told(tmp_path):
    assert refused(check_disks, [str(tmp_path / "no")], may_share=True).startswith("there is no '")
    file = tmp_path / "file"
    file.touch()
    assert "is not a folder" in refused(check_disks, [str(file)], may_share=True)
    assert "is no mount point" in refused(check_disks, [str(tmp_path)], may_share=False)
    check_disks([str(tmp_path)], may_share=True)


def test_disks_that_are_one_disk_are_told(tmp_path, monkeypatch):
    first, second = tmp_path / "d1", tmp_path / "d2"
    first.mkdir()
    second.mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda _path: True)
    error = refused(check_disks, [str(first), str(second)], may_share=False)
    assert error.startswith(f"'{first}' and '{second}' are one disk")
    check_disks([str(first), str(second)], may_share=True)


def test_partitions_of_one_disk_are_one_disk(tmp_path, monkeypatch):
    """As /sys has them: a partition is a folder in that of its disk."""
    disk = tmp_path / "sys" / "sda"
    folders = []
    for number, name in enumerate(("d1", "d2")):
        folder = tmp_path / name
        folder.mkdir()
        folders.append(folder)
        partition = disk / f"sda{number}"
        partition.mkdir(parents=True)
        (partition / "partition").write_text(f"{number}\n")
    (disk / "dev").write_text("8:0\n")
    devices = {str(folder): os.makedev(8, i) for i, folder in enumerate(folders, 1)}
    links = tmp_path / "block"
    links.mkdir()
    for number in (1, 2):
        (links / f"8:{number}").symlink_to(disk / f"sda{number - 1}")

    class Stat:
        def __init__(self, device: int) -> None:
            self.st_dev = device

    monkeypatch.setattr(host_facts, "_DEVICES", links)
    real = Path.stat
    monkeypatch.setattr(
        Path,
        "stat",
        lambda path, **more: (
            Stat(devices[str(path)]) if str(path) in devices else real(path, **more)
        ),
    )
    assert host_facts._disk_of(folders[0]) == host_facts._disk_of(folders[1]) == "8:0"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_disk_that_cannot_be_written_is_told(tmp_path):
    tmp_path.chmod(0o500)
    assert "can't be written by this user" in refused(check_disks, [str(tmp_path)], may_share=True)


def test_a_host_that_is_not_this_machine_is_told():
    assert check_host(HOST) == []
    assert check_host("localhost") == []
    assert "which is no address of this machine" in refused(check_host, "192.0.2.1")
    assert "has no address" in refused(check_host, "no.such.host.invalid")


def test_a_name_that_is_the_loopback_is_told(monkeypatch):
    address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [address])
    (warning,) = check_host("h1")
    assert warning.startswith("'h1' is 127.0.1.1 on this machine, where no other machine reaches")


def test_ports_in_use_are_told():
    free = find_free_port(HOST)
    check_ports(HOST, [free], "x")
    with socket.create_server((HOST, free)):
        error = refused(check_ports, HOST, [free], "choose others")
    assert error == (
        f"port {free} of {HOST} is in use: stop the program that has it, or choose others"
    )
