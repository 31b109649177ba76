"""`headrace machine init`: writes what a machine's brokers need.

    D/machine.json                   the layout
    D/common.properties              the settings that all of its brokers have
    D/broker-<id>/server.properties  settings; what a person changes there stays
    D/units/                         systemd units
    <disk>/headrace/broker-<id>/     a log directory

Everything is checked before anything is written, and the layout is written first: a command that
was killed can be run again, and finds what it had decided.
"""

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import storage_engine
from storage_engine.core.errors import HeadraceError
from storage_engine.core.settings.settings import METRICS_LISTENER
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.local.broker_settings import (
    check_settings,
    merge_settings,
    properties_lines,
    read_settings,
    write_settings,
)
from storage_engine.tools.local.directory_lock import directory_lock
from storage_engine.tools.local.free_ports import HIGHEST_PORT
from storage_engine.tools.local.machine import host_facts, machine_file
from storage_engine.tools.local.machine.layout import (
    LayoutRequest,
    MachineBroker,
    MachineLayout,
    plan_layout,
)
from storage_engine.tools.local.machine.units import TARGET, UnitPlace, unit_files
from storage_engine.tools.local.metrics_ports import DISTANCE
from storage_engine.tools.local.secret_files import write_whole
from storage_engine.tools.zookeeper_tls import load_zookeeper_tls

COMMON_FILE = "common.properties"
UNITS_FOLDER = "units"
SYSTEM_UNITS = Path("/etc/systemd/system")
_METRICS_HOST = "127.0.0.1"
_HEADING = (
    "# Settings of all brokers of this machine; 'headrace machine init' gives them to each.\n"
)
_DECIDED = {
    "broker.id": "--first-id",
    "listeners": "--host, --base-port and security.inter.broker.protocol",
    "log.dirs": "--disks",
    "log.dir": "--disks",
    "zookeeper.connect": "--zookeeper",
    "broker.host.name": "--host",
    "broker.rack": "--rack",
}
_OF_A_NEW_MACHINE = {"zookeeper.session.timeout.ms": "2500"}
"""The shortest session that busy machines bore, by docs/failover.md: who lays out machines waits
for none that is dark longer than that."""
_ZOOKEEPER_TIMEOUT_MS = 5_000
_VERIFY_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRequest:
    """The arguments of `machine init`."""

    directory: Path
    layout: LayoutRequest
    settings: Mapping[str, str]
    """For all brokers, beside those that were given before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitResult:
    """The outcome of `machine init`."""

    layout: MachineLayout
    added: tuple[int, ...]
    """The ids of the brokers that are new."""
    warnings: tuple[str, ...]
    install_commands: tuple[str, str]
    """By which systemd takes the units."""
    units_checked: bool


def user_units() -> Path:
    """The folder of units of the user's own systemd."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "systemd" / "user"


def initialize(request: InitRequest, progress: Callable[[str], None]) -> InitResult:
    """Lay out the machine, or add to it."""
    directory = request.directory.absolute()
    if any(each.isspace() or each in ',%$\\"' for each in str(directory)):
        raise UsageError(f"--dir '{directory}': give a path without blanks, commas and quotes")
    _check_settings(request.settings)
    is_new = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"'{directory}' can't be made: {error.strerror}") from None
    with directory_lock(directory):
        existing = machine_file.read(directory) if machine_file.exists(directory) else None
        layout = plan_layout(
            existing,
            request.layout,
            directory=str(directory),
            cpus=host_facts.usable_cpus(),
            memory_mib=host_facts.memory_for_brokers_mib(),
            user=pwd.getpwuid(os.getuid()).pw_name,
        )
        owner = _owner(layout.run_as)
        standing = {} if (directory / COMMON_FILE).exists() else _OF_A_NEW_MACHINE
        common = {**standing, **read_settings(directory / COMMON_FILE), **request.settings}
        new = _new_brokers(existing, layout)
        warnings = _check_machine(existing, layout, new)
        settings = {
            broker.id: _settings_of(layout, broker, common, directory) for broker in layout.brokers
        }
        for broker in layout.brokers:
            check_settings(directory / broker.config, settings[broker.id])
        warnings += _check_ids(layout, new, common, directory)
        machine_file.write(directory, layout)
        write_whole(directory / COMMON_FILE, (_HEADING + properties_lines(common)).encode())
        for broker in layout.brokers:
            write_settings(directory / broker.config, settings[broker.id])
        folders = _make_log_dirs(layout)
        units = _write_units(directory, layout)
        mine = [
            path
            for each in layout.brokers
            for path in (directory / each.folder, directory / each.config)
        ]
        files = [directory / machine_file.FILE_NAME, directory / COMMON_FILE, *units]
        _give(owner, [*mine, *files, *folders, *([directory] if is_new else [])])
    if owner.pw_uid == 0 and not layout.has_user_units:
        warnings.append("the brokers of these units run as root: give --run-as USER")
    unchecked = _unchecked(units, is_user=layout.has_user_units)
    if unchecked is not None:
        progress(f"{unchecked}: the units were not checked")
    return InitResult(
        layout=layout,
        added=tuple(broker.id for broker in new),
        warnings=tuple(warnings),
        install_commands=_install_commands(directory, is_user=layout.has_user_units),
        units_checked=unchecked is None,
    )


def _owner(name: str) -> pwd.struct_passwd:
    try:
        owner = pwd.getpwnam(name)
    except KeyError:
        raise UsageError(
            f"--run-as: there is no user '{name}' on this machine; make it with: "
            f"useradd --system {name}"
        ) from None
    if os.getuid() not in (0, owner.pw_uid):
        raise UsageError(
            f"the brokers of this machine are for the user '{name}': run the command as that user, "
            "or as root"
        )
    return owner


def _check_settings(settings: Mapping[str, str]) -> None:
    for key in settings:
        if key in _DECIDED or key.startswith("advertised."):
            option = _DECIDED.get(key, "--host")
            raise UsageError(f"'{key}' differs from broker to broker: {option} decides it")


def _new_brokers(
    existing: MachineLayout | None, layout: MachineLayout
) -> tuple[MachineBroker, ...]:
    before = {broker.id for broker in existing.brokers} if existing else set()
    return tuple(broker for broker in layout.brokers if broker.id not in before)


def _check_machine(
    existing: MachineLayout | None, layout: MachineLayout, new: Sequence[MachineBroker]
) -> list[str]:
    warnings = host_facts.check_host(layout.host)
    host_facts.check_disks(layout.disks, may_share=layout.has_shared_disks)
    host_facts.check_ports(
        layout.host, (broker.port for broker in new), "choose others with --base-port"
    )
    known = {each for broker in (existing.brokers if existing else ()) for each in broker.log_dirs}
    for broker in layout.brokers:
        for log_dir in broker.log_dirs:
            path = Path(log_dir)
            if log_dir not in known and path.is_dir() and any(path.iterdir()):
                raise CommandError(
                    f"'{log_dir}' has data already, of another layout: give its --dir, another "
                    "--first-id, or move it away"
                )
    unused = set(host_facts.usable_cpus()) - {broker.cpu for broker in layout.brokers}
    if not unused:
        warnings.append(
            "no core is left to the system and ZooKeeper, which then delay the brokers: one or "
            "two fewer --cores are better"
        )
    if len(layout.brokers) % len(layout.disks) and len(layout.brokers) > len(layout.disks):
        warnings.append(
            f"{len(layout.brokers)} brokers on {len(layout.disks)} disks fill some disks faster: "
            "a multiple of the disks fills all alike"
        )
    return warnings


def _check_ids(
    layout: MachineLayout,
    new: Sequence[MachineBroker],
    common: Mapping[str, str],
    directory: Path,
) -> list[str]:
    """CommandError for an id that a living broker of another machine has. Return warnings."""
    if not new:
        return []
    # kazoo takes as long to import as all else here.
    from storage_engine.zookeeper.access import ZooKeeperAccess
    from storage_engine.zookeeper.connect_string import ConnectString
    from storage_engine.zookeeper.live_brokers import live_hosts

    try:
        with _in_a_file(directory, common) as file:
            access = ZooKeeperAccess(tls=load_zookeeper_tls(file))
        connect = ConnectString.parse(layout.zookeeper)
        hosts = live_hosts(connect, _ZOOKEEPER_TIMEOUT_MS, access)
    except HeadraceError as error:
        return [f"whether another machine has these ids was not checked: {error}"]
    for broker in new:
        if hosts.get(broker.id, layout.host) != layout.host:
            raise CommandError(
                f"broker {broker.id} lives on {hosts[broker.id]} already: give --first-id, "
                "another than every other machine's"
            )
    return []


@contextlib.contextmanager
def _in_a_file(directory: Path, settings: Mapping[str, str]) -> Iterator[Path]:
    path = directory / f".{COMMON_FILE}.new"
    write_whole(path, properties_lines(settings).encode())
    try:
        yield path
    finally:
        path.unlink()


def _settings_of(
    layout: MachineLayout, broker: MachineBroker, common: Mapping[str, str], directory: Path
) -> dict[str, str]:
    protocol = common.get("security.inter.broker.protocol", "PLAINTEXT")
    decided = {
        "broker.id": str(broker.id),
        "broker.host.name": layout.host,
        **({} if layout.rack is None else {"broker.rack": layout.rack}),
        "listeners": f"{protocol}://{layout.host}:{broker.port}",
        "log.dirs": ",".join(broker.log_dirs),
        "zookeeper.connect": layout.zookeeper,
    }
    metrics = broker.port + DISTANCE
    present = read_settings(directory / broker.config)
    if METRICS_LISTENER not in {*common, *present} and metrics <= HIGHEST_PORT:
        present[METRICS_LISTENER] = f"{_METRICS_HOST}:{metrics}"
    return merge_settings(
        present,
        decided=decided,
        overrides=tuple(common.items()),
        brokers_before=layout.machines,
        brokers_now=layout.machines,
    )


def _make_log_dirs(layout: MachineLayout) -> list[Path]:
    """Return the folders that were made."""
    made = []
    for broker in layout.brokers:
        for log_dir in map(Path, broker.log_dirs):
            if not log_dir.exists():
                log_dir.mkdir(parents=True, mode=0o700)
                made.append(log_dir)
    return made


def _write_units(directory: Path, layout: MachineLayout) -> list[Path]:
    place = UnitPlace(
        directory=str(directory),
        python=sys.executable,
        package_root=str(Path(storage_engine.__file__).resolve().parent.parent),
        run_as=None if layout.has_user_units else layout.run_as,
    )
    folder = directory / UNITS_FOLDER
    folder.mkdir(exist_ok=True)
    written = []
    for name, text in unit_files(layout, place).items():
        write_whole(folder / name, text.encode(), mode=0o644)
        written.append(folder / name)
    return written


def _give(owner: pwd.struct_passwd, paths: Sequence[Path]) -> None:
    """Files that root has made for another user become that user's."""
    if os.getuid() == owner.pw_uid:
        return
    for path in paths:
        os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)


def _unchecked(units: Sequence[Path], *, is_user: bool) -> str | None:
    """Have systemd-analyze check the units; CommandError with its first complaint. Return why it
    can't; None when it did."""
    program = shutil.which("systemd-analyze")
    if program is None:
        return "systemd-analyze is not installed here"
    command = [program, "verify", "--man=no", *(["--user"] if is_user else [])]
    with tempfile.TemporaryDirectory() as runtime:
        # A user who is not logged in has no such directory.
        environment = {"XDG_RUNTIME_DIR": runtime, **os.environ}
        done = subprocess.run(
            [*command, *map(str, units)],
            capture_output=True,
            text=True,
            timeout=_VERIFY_TIMEOUT_S,
            env=environment,
            check=False,
        )
    # It takes what it does not know for a warning, and its status is 0 then.
    said = done.stderr.splitlines()
    complaints = [line for line in said if line.startswith(f"{units[0].parent}/")]
    if complaints:
        raise CommandError(f"systemd-analyze does not take the units: {complaints[0]}")
    return f"systemd-analyze failed: {said[0] if said else ''}" if done.returncode else None


def _install_commands(directory: Path, *, is_user: bool) -> tuple[str, str]:
    units = f"{directory / UNITS_FOLDER}/*"
    if is_user:
        return (
            f"install -D -m 644 -t {user_units()} {units}",
            f"systemctl --user daemon-reload && systemctl --user enable --now {TARGET}",
        )
    return (
        f"sudo install -m 644 -t {SYSTEM_UNITS} {units}",
        f"sudo systemctl daemon-reload && sudo systemctl enable --now {TARGET}",
    )
