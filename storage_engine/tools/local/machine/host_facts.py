"""The machine's processors, memory, disks and addresses, and which of them brokers can have."""

import ipaddress
import os
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.free_ports import is_port_free

SHARE_OF_BROKERS = 7 / 8
"""The share of the memory; the rest is for the system and ZooKeeper."""

_MEMORY = Path("/proc/meminfo")
_DEVICES = Path("/sys/dev/block")


def usable_cpus() -> list[int]:
    """The processors that this process may use."""
    return sorted(os.sched_getaffinity(0))


def memory_for_brokers_mib() -> int:
    for line in _MEMORY.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return int(int(value.split()[0]) / 1024 * SHARE_OF_BROKERS)
    raise CommandError(f"{_MEMORY} does not say how much memory there is: give --memory")


def check_disks(disks: Sequence[str], *, may_share: bool) -> None:
    """CommandError for a folder that is no disk of its own, or that can't be written."""
    first_on: dict[str, str] = {}
    for disk in disks:
        path = Path(disk)
        if not path.exists():
            raise CommandError(f"there is no '{disk}': mount the disk there, or correct --disks")
        if not path.is_dir():
            raise CommandError(f"'{disk}' is not a folder: correct --disks")
        if not os.access(path, os.W_OK | os.X_OK):
            raise CommandError(
                f"'{disk}' can't be written by this user: chown it, or run the command as its owner"
            )
        if may_share:
            continue
        if not path.is_mount():
            raise CommandError(
                f"'{disk}' is no mount point, so that its files would be on the disk of another "
                "folder: mount the disk there, or give --same-disk-ok for a try-out"
            )
        device = _disk_of(path)
        if device in first_on:
            raise CommandError(
                f"'{first_on[device]}' and '{disk}' are one disk, which would fail as one: name "
                "it once, or give --same-disk-ok for a try-out"
            )
        first_on[device] = disk


def _disk_of(path: Path) -> str:
    """The device that has the file system; for a partition the disk that it is on."""
    number = path.stat().st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    device = _DEVICES / name
    try:
        if (device / "partition").exists():
            return (device.resolve().parent / "dev").read_text(encoding="ascii").strip()
    except OSError:
        pass
    return name


def check_host(host: str) -> list[str]:
    """CommandError when the host has no address of this machine. Return warnings."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise CommandError(
            f"the host '{host}' has no address ({error.strerror}): correct --host, or the "
            "machine's /etc/hosts"
        ) from None
    addresses = [str(each[4][0]) for each in found]
    if not any(is_port_free(address, 0) for address in addresses):
        raise CommandError(
            f"the host '{host}' is {addresses[0]}, which is no address of this machine: run the "
            "command there, or correct --host"
        )
    is_name = not _is_address(host) and host != "localhost"
    if is_name and all(ipaddress.ip_address(each).is_loopback for each in addresses):
        return [
            f"'{host}' is {addresses[0]} on this machine, where no other machine reaches it: give "
            "its address in /etc/hosts"
        ]
    return []


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def check_ports(host: str, ports: Iterable[int], remedy: str) -> None:
    """CommandError that names the ports which somebody holds."""
    taken = [port for port in ports if not is_port_free(host, port)]
    if taken:
        names = ", ".join(map(str, taken))
        raise CommandError(
            f"{'port' if len(taken) == 1 else 'ports'} {names} of {host} "
            f"{'is' if len(taken) == 1 else 'are'} in use: stop the program that has "
            f"{'it' if len(taken) == 1 else 'them'}, or {remedy}"
        )
