"""Lay out a broker for each core of a machine, and start, stop and restart them.

A broker uses one core: a machine of 16 runs 14, each pinned to a core of its own, with its log
directory on one of the disks; two cores are left to the system and ZooKeeper. 'init' writes the
settings of the brokers and systemd units for them into the directory; run it again with more cores
or disks to add brokers and directories. It never renumbers, moves or drops anything.

'start', 'stop' and 'restart' go through systemd where the units of the directory are installed;
else the brokers are processes of their own, pinned in the same way, without limits of memory.
'restart' is rolling: the next broker stops only when all partitions of the one before are in sync
again. A command that was killed can be run again.

examples:
  headrace machine init --dir /var/lib/headrace --host h1 --cores 14 --disks /d1,/d2,/d3,/d4 \\
      --zookeeper h1:2181,h2:2181,h3:2181
  headrace machine start --dir /var/lib/headrace
  headrace machine status --dir /var/lib/headrace --json
  headrace machine restart --dir /var/lib/headrace
"""

import argparse
from dataclasses import asdict
from pathlib import Path

from storage_engine.client.settings import read_properties
from storage_engine.tools.actions import Actions
from storage_engine.tools.arguments import CONFIG_HELP, add_json, add_timeout
from storage_engine.tools.document import Document
from storage_engine.tools.local.broker_settings import parse_setting
from storage_engine.tools.local.machine.layout import (
    DEFAULT_BASE_PORT,
    DEFAULT_MACHINES,
    LayoutRequest,
    parse_disks,
    parse_size_mib,
)
from storage_engine.tools.local.machine.machine import (
    IN_SYNC_TIMEOUT_S,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    Machine,
)
from storage_engine.tools.local.machine.set_up import InitRequest, InitResult, initialize
from storage_engine.tools.table import print_json, print_rows, report_line, write_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace machine`."""
    actions = Actions(parser, "machine")
    init = actions.add("init", _init, "lay out the brokers, or add some", asks_brokers=False)
    init.formatter_class = argparse.RawDescriptionHelpFormatter
    init.description = _INIT
    _add_init(init)
    for name, act, summary, timeout_s, meaning in (
        ("start", _start, "start the brokers that do not run", START_TIMEOUT_S, _START),
        ("stop", _stop, "stop the brokers, one after the other", STOP_TIMEOUT_S, _STOP),
        ("restart", _restart, "restart one broker after another", IN_SYNC_TIMEOUT_S, _IN_SYNC),
        ("status", _status, "show the brokers, and how many partitions are behind", None, ""),
    ):
        action = actions.add(name, act, summary, asks_brokers=False)
        _add_directory(action)
        if name != "stop":
            action.add_argument("--command-config", type=Path, metavar="FILE", help=CONFIG_HELP)
        if timeout_s is None:
            add_json(action)
        else:
            add_timeout(action, timeout_s, meaning)


_INIT = """\
Lay out the brokers of this machine, or add some. Nothing that is there is renumbered or moved.

examples:
  headrace machine init --dir /var/lib/headrace --host h1 --cores 14 --disks /d1,/d2,/d3,/d4 \\
      --zookeeper h1:2181,h2:2181,h3:2181 --settings brokers.properties --run-as headrace
  headrace machine init --dir /var/lib/headrace --cores 15
"""
_START = "give up when a broker does not answer after this many seconds"
_STOP = "kill a broker that still runs after this many seconds"
_IN_SYNC = "give up when for this many seconds no further partition of a broker was in sync again"


def _add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", required=True, type=Path, metavar="DIR", help="directory of the machine's brokers"
    )


def _add_init(parser: argparse.ArgumentParser) -> None:
    _add_directory(parser)
    parser.add_argument(
        "--host",
        metavar="NAME",
        help="name or IPv4 address by which clients and other machines reach this one",
    )
    parser.add_argument(
        "--cores", type=int, metavar="N", help="number of brokers: leave one or two cores free"
    )
    parser.add_argument(
        "--disks", metavar="DIR,DIR", help="mount points of the disks, which are dealt out"
    )
    parser.add_argument(
        "--zookeeper", metavar="HOST:PORT,…", help="the servers of ZooKeeper, with a /PATH if any"
    )
    _add_place(parser)
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="memory of all brokers together, with the cache of their files, such as 48g "
        "(default: seven eighths of the machine's)",
    )
    _add_settings(parser)
    parser.add_argument(
        "--same-disk-ok", action="store_true", help="for a try-out: --disks may be one disk"
    )
    parser.add_argument(
        "--shared-cores-ok",
        action="store_true",
        help="for a try-out: more brokers than the machine has cores",
    )
    add_json(parser)


def _add_place(parser: argparse.ArgumentParser) -> None:
    """Where the machine and its brokers are among others."""
    parser.add_argument(
        "--rack", metavar="NAME", help="the zone of the machine, from which consumers may read"
    )
    parser.add_argument(
        "--machines",
        type=int,
        metavar="N",
        help="number of machines in the cluster, which the numbers of replicas follow (default "
        f"{DEFAULT_MACHINES})",
    )
    parser.add_argument(
        "--first-id",
        type=int,
        metavar="N",
        help="id of the first broker; the others follow (default: the number at the end of the "
        "host's name times 1,000)",
    )
    parser.add_argument(
        "--base-port",
        type=int,
        metavar="PORT",
        help=f"port of the first broker; the others follow (default {DEFAULT_BASE_PORT})",
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """The brokers' settings, and who runs them."""
    parser.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="properties file with settings for all brokers, such as those of TLS; they are kept "
        "in DIR/common.properties",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting for all brokers; repeatable",
    )
    parser.add_argument(
        "--run-as", metavar="USER", help="user of the brokers (default: who runs the command)"
    )
    parser.add_argument(
        "--user", action="store_true", help="write units for the user's own systemd"
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace machine`."""
    args.act(args)
    return 0


def _init(args: argparse.Namespace) -> None:
    settings = {} if args.settings is None else read_properties(args.settings)
    result = initialize(
        InitRequest(
            directory=args.dir,
            layout=LayoutRequest(
                host=args.host,
                cores=args.cores,
                disks=None if args.disks is None else parse_disks(args.disks),
                zookeeper=args.zookeeper,
                rack=args.rack,
                machines=args.machines,
                first_id=args.first_id,
                base_port=args.base_port,
                memory_mib=None if args.memory is None else parse_size_mib(args.memory),
                has_shared_disks=args.same_disk_ok,
                has_shared_cores=args.shared_cores_ok,
                run_as=args.run_as,
                has_user_units=args.user,
            ),
            settings={**settings, **dict(map(parse_setting, args.set))},
        ),
        report_line,
    )
    for warning in result.warnings:
        report_line(f"warning: {warning}")
    if args.json:
        print_json(_document(result))
        return
    layout = result.layout
    print_rows(
        ("id", "port", "cpu", ("log dirs", "log_dirs")),
        [asdict(broker) for broker in layout.brokers],
    )
    write_line("")
    write_line(
        f"each broker has {layout.broker_memory_mib} MiB; install the units and start them with:"
    )
    for command in result.install_commands:
        write_line(f"  {command}")
    write_line(f"or run them without systemd: headrace machine start --dir {args.dir}")


def _document(result: InitResult) -> Document:
    return {
        **asdict(result.layout),
        "bootstrap_servers": result.layout.bootstrap_servers,
        "added": list(result.added),
        "install_commands": list(result.install_commands),
        "units_checked": result.units_checked,
    }


def _start(args: argparse.Namespace) -> None:
    started = _machine(args).start(timeout_s=args.timeout)
    write_line(f"started: {_ids(started)}" if started else "all brokers run already")


def _stop(args: argparse.Namespace) -> None:
    stopped = Machine(args.dir, progress=report_line).stop(timeout_s=args.timeout)
    write_line(f"stopped: {_ids(stopped)}" if stopped else "no broker was running")


def _restart(args: argparse.Namespace) -> None:
    restarted = _machine(args).restart(in_sync_timeout_s=args.timeout)
    write_line(f"restarted: {_ids(restarted)}")


def _status(args: argparse.Namespace) -> None:
    machine = _machine(args)
    layout, states = machine.layout, machine.states()
    if args.json:
        print_json(
            {
                "host": layout.host,
                "rack": layout.rack,
                "zookeeper": layout.zookeeper,
                "bootstrap_servers": layout.bootstrap_servers,
                "supervisor": machine.supervisor.name,
                "brokers": [asdict(state) for state in states],
            }
        )
        return
    write_line(f"machine {layout.host}, brokers run as {machine.supervisor.name}")
    write_line("")
    columns = ("port", "cpu", "pid", "serves", ("controller", "is_controller"), "behind")
    print_rows(
        (("broker", "id"), *columns, ("log dirs", "log_dirs")), [asdict(state) for state in states]
    )


def _machine(args: argparse.Namespace) -> Machine:
    return Machine(args.dir, config=args.command_config, progress=report_line)


def _ids(ids: list[int]) -> str:
    return ", ".join(map(str, ids))
