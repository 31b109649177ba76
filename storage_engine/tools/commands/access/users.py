"""List, add and remove users that log in with SCRAM.

Brokers keep salted hashes of passwords, never a password. When the command ends, the change is in
force on the broker that it connected to; the other brokers follow a moment later. A connection that
is logged in stays so until it must log in again (connections.max.reauth.ms).

--zookeeper writes the user into ZooKeeper without a broker: brokers that log in to each other with
SCRAM need their own user before the first of them starts. While brokers run, use
--bootstrap-server.

actions:
  list         list all users, with their mechanisms
  add USER     create a user, or change its password
  remove USER  remove a user

The command asks for the password, or reads it from the first line of --password-file. The password
is not an argument, since other users of this machine can see the arguments of a process.

examples:
  headrace users list --bootstrap-server 127.0.0.1:9092 --command-config admin.properties
  headrace users add alice --bootstrap-server 127.0.0.1:9092 --command-config admin.properties
  headrace users add broker --zookeeper 127.0.0.1:2181 --password-file secret.txt
  headrace users remove alice --bootstrap-server 127.0.0.1:9092 --command-config admin.properties
"""

import argparse
import getpass
import sys
from pathlib import Path

from storage_engine.client.admin.scram_users import describe_users, remove_user, set_password
from storage_engine.core.security.scram_credential import ScramMechanism
from storage_engine.core.settings.zookeeper_settings import ENABLE
from storage_engine.tools.actions import Actions
from storage_engine.tools.arguments import add_bootstrap_server, add_json
from storage_engine.tools.client_settings import connect
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.table import print_json, print_table, write_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace users`: each action has its own."""
    actions = Actions(parser, "users")
    listing = actions.add("list", _list, "list all users, with their mechanisms", "list")
    add_json(listing)
    adding = actions.add(
        "add", _set, "create a user, or change its password", "add alice", asks_brokers=False
    )
    adding.add_argument("user", metavar="USER", help="name with which the user logs in")
    adding.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="read the password from the first line of this file, '-' for standard input "
        "(default: ask for it)",
    )
    _add_mechanism(adding)
    add_bootstrap_server(adding, required=False)
    adding.add_argument(
        "--zookeeper",
        metavar="HOSTS",
        help="write the user into this ZooKeeper, HOST:PORT[,HOST:PORT…][/PATH], without a broker",
    )
    adding.add_argument(
        "--zookeeper-credentials",
        type=Path,
        metavar="FILE",
        help="file with the brokers' user:password for ZooKeeper "
        "(zookeeper.digest.credentials.file); only brokers can then read the user's hashes",
    )
    adding.add_argument(
        "--zk-tls-config-file",
        type=Path,
        metavar="FILE",
        help="connect to ZooKeeper with TLS, by the settings zookeeper.ssl.* of this file, such as "
        "a broker's server.properties",
    )
    removing = actions.add("remove", _remove, "remove a user", "remove alice")
    removing.add_argument("user", metavar="USER", help="an existing user")
    _add_mechanism(removing)


def run(args: argparse.Namespace) -> int:
    """Run `headrace users`."""
    args.act(args)
    return 0


def _add_mechanism(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mechanism",
        action="append",
        default=[],
        choices=[each.value for each in ScramMechanism],
        help="SCRAM mechanism to change; repeatable (default: both)",
    )


def _mechanisms(args: argparse.Namespace) -> list[ScramMechanism]:
    return [each for each in ScramMechanism if not args.mechanism or each.value in args.mechanism]


def _list(args: argparse.Namespace) -> None:
    with connect(args.bootstrap_server, args.command_config) as cluster:
        users = describe_users(cluster)
    if args.json:
        print_json(
            [
                {
                    "user": user,
                    "credentials": [
                        {"mechanism": mechanism.value, "iterations": iterations}
                        for mechanism, iterations in credentials.items()
                    ],
                }
                for user, credentials in users.items()
            ]
        )
    elif users:
        rows = [
            (user, mechanism.value, iterations)
            for user, credentials in users.items()
            for mechanism, iterations in credentials.items()
        ]
        print_table(("user", "mechanism", "iterations"), rows)
    else:
        write_line("there are no users")


def _set(args: argparse.Namespace) -> None:
    if (args.zookeeper is None) == (args.bootstrap_server is None):
        raise UsageError("give either --bootstrap-server or --zookeeper")
    if args.zookeeper_credentials is not None and args.zookeeper is None:
        raise UsageError("--zookeeper-credentials belongs to --zookeeper")
    if args.zk_tls_config_file is not None and args.zookeeper is None:
        raise UsageError("--zk-tls-config-file belongs to --zookeeper")
    password = _password(args.password_file)
    if args.zookeeper is None:
        with connect(args.bootstrap_server, args.command_config) as cluster:
            set_password(cluster, args.user, password, _mechanisms(args))
    else:
        _set_in_zookeeper(args, password)
    write_line(f"user '{args.user}' is set")


def _set_in_zookeeper(args: argparse.Namespace, password: str) -> None:
    from storage_engine.tools.user_nodes import UserNodes, credentials_of
    from storage_engine.tools.zookeeper_tls import load_zookeeper_tls
    from storage_engine.zookeeper.access import load_access

    file = args.zookeeper_credentials
    tls = None
    if args.zk_tls_config_file is not None:
        tls = load_zookeeper_tls(args.zk_tls_config_file)
        if tls is None:
            raise CommandError(f"{args.zk_tls_config_file} does not set {ENABLE}=true")
    access = load_access(file, set_acl=file is not None, tls=tls)
    with UserNodes.connected(args.zookeeper, access) as users:
        users.set(args.user, credentials_of(password, _mechanisms(args)))


def _password(file: Path | None) -> str:
    if file is None:
        if not sys.stdin.isatty():
            raise UsageError("there is no terminal to ask for the password; give --password-file")
        password = getpass.getpass("password: ")
        if getpass.getpass("once more: ") != password:
            raise CommandError("the two passwords differ; nothing is changed")
    elif str(file) == "-":
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = file.read_text(encoding="utf-8").partition("\n")[0]
    if not password:
        raise CommandError("the password is empty; nothing is changed")
    return password


def _remove(args: argparse.Namespace) -> None:
    with connect(args.bootstrap_server, args.command_config) as cluster:
        present = describe_users(cluster, [args.user]).get(args.user, {})
        wanted = [each for each in _mechanisms(args) if each in present]
        if not wanted:
            raise CommandError(f"there is no user '{args.user}' to remove")
        remove_user(cluster, args.user, wanted)
    write_line(f"user '{args.user}' is removed: {', '.join(each.value for each in wanted)}")
