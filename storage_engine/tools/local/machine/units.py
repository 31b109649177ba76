"""The systemd units of a machine: one for each broker, and a target that has them all. Without IO.

Why they are as they are:

- `KillMode=process`: a stop, or the end of the broker, reaches the broker alone. A process that it
  leaves behind for a moment closes its session with ZooKeeper, so that others lead at once; with
  `mixed` or `control-group` systemd would kill it as soon as the broker is dead.
- `OOMPolicy=continue`: where the kernel kills the broker for want of memory, that process is left
  alone as well. The broker is started again, as after every other death (`Restart=on-failure`).
- `MemoryHigh` makes the kernel reclaim, mostly the cache of files, before `MemoryMax` kills.
- `CPUAffinity`: a broker keeps to its core, where its caches are warm and nobody else's broker is.
- What the system's own folders hold is read-only; a broker writes to its directories only. Units of
  a user do without this where it would take root's rights.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.tools.local.machine.layout import MachineBroker, MachineLayout

TARGET = "headrace-brokers.target"
LIMIT_FILES = 1_048_576
"""A broker has a descriptor for each connection, and up to three for each segment."""
HIGH_SHARE = 0.9
"""The share of the most memory at which the kernel begins to reclaim."""
STOP_S = 60
RESTART_S = 1

_PLAIN_WORD = re.compile(r"[\w@+=:,./-]+")
_TEMPORARY = ("/tmp/", "/var/tmp/")
_HARDENING = """\
ProtectSystem=strict
ProtectHome=read-only
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
CapabilityBoundingSet=
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPlace:
    """Where the units' files and program are."""

    directory: str
    """The machine's."""
    python: str
    package_root: str
    """The folder that has the package."""
    run_as: str | None
    """The user of the brokers; None for units of a user's own systemd."""


def unit_name(broker: MachineBroker) -> str:
    return f"headrace-broker-{broker.id}.service"


def unit_files(layout: MachineLayout, place: UnitPlace) -> dict[str, str]:
    """The text of each unit, by its name."""
    files = {unit_name(broker): _service(layout, broker, place) for broker in layout.brokers}
    return {**files, TARGET: _target(layout, place)}


def starts(text: str, config: str) -> bool:
    """Whether a unit is that of the broker with this `server.properties`."""
    return any(
        line.startswith("ExecStart=") and line.endswith(f" broker {quoted(config)}")
        for line in text.splitlines()
    )


def quoted(word: str) -> str:
    """A word of a unit's command line, where `%` and `$` have meanings."""
    doubled = word.replace("%", "%%").replace("$", "$$")
    if _PLAIN_WORD.fullmatch(doubled):
        return doubled
    escaped = doubled.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _service(layout: MachineLayout, broker: MachineBroker, place: UnitPlace) -> str:
    config = f"{place.directory}/{broker.config}"
    command = [place.python, "-P", "-m", "storage_engine.tools.cli", "broker", config]
    most = layout.broker_memory_mib
    folder = f"{place.directory}/{broker.folder}"
    needed = " ".join(map(quoted, (folder, *broker.log_dirs)))
    lines = [
        "# Written by 'headrace machine init', which does so again: change it by drop-ins.",
        "[Unit]",
        f"Description=Headrace broker {broker.id} of {layout.host}, on core {broker.cpu}",
        "Wants=network-online.target",
        "After=network-online.target",
        f"RequiresMountsFor={needed}",
        f"PartOf={TARGET}",
        # It is tried again for as long as a disk or ZooKeeper is away.
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=exec",
        *([] if place.run_as is None else [f"User={place.run_as}"]),
        f"Environment={quoted(f'PYTHONPATH={place.package_root}')}",
        f"WorkingDirectory={folder.replace('%', '%%')}",
        f"ExecStart={' '.join(map(quoted, command))}",
        "Restart=on-failure",
        f"RestartSec={RESTART_S}",
        f"TimeoutStopSec={STOP_S}",
        "KillMode=process",
        "OOMPolicy=continue",
        f"CPUAffinity={broker.cpu}",
        f"MemoryHigh={int(most * HIGH_SHARE)}M",
        f"MemoryMax={most}M",
        f"LimitNOFILE={LIMIT_FILES}",
        "UMask=0077",
        "NoNewPrivileges=yes",
        "LockPersonality=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "SystemCallArchitectures=native",
    ]
    if place.run_as is not None:
        lines += [*_HARDENING.splitlines(), f"ReadWritePaths={needed}"]
        if not any(each.startswith(_TEMPORARY) for each in (folder, *broker.log_dirs)):
            lines.append("PrivateTmp=yes")
    lines += ["", "[Install]", f"WantedBy={TARGET}", ""]
    return "\n".join(lines)


def _target(layout: MachineLayout, place: UnitPlace) -> str:
    wanted: Sequence[str] = [unit_name(broker) for broker in layout.brokers]
    return "\n".join(
        [
            "# Written by 'headrace machine init'.",
            "[Unit]",
            f"Description=The Headrace brokers of {layout.host}",
            f"Wants={' '.join(wanted)}",
            "",
            "[Install]",
            f"WantedBy={'default' if place.run_as is None else 'multi-user'}.target",
            "",
        ]
    )
