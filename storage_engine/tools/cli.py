"""Entry of the command `headrace`: finds the command's module, parses its arguments, turns errors
into exit statuses.

Only the module of the command that was asked for is imported, so that `--help` and shell completion
are quick. Exit status: 0 done, 1 a failure reported in one line on stderr, 2 wrong usage."""

import argparse
import importlib
import importlib.util
import io
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from storage_engine.core.errors import HeadraceError
from storage_engine.core.printable import printable
from storage_engine.tools.errors import OutputClosedError, UsageError

DONE = 0
FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
"""Shells expect 128 + SIGINT of a program that Ctrl-C ended."""


_COMMANDS = "storage_engine.tools.commands"


class CommandModule(Protocol):
    """The functions that the module of a command has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


_LOCAL, _ACCESS, _CONSOLE = ".local_cluster", ".access", "headrace_console.commands"
_REGISTRY = "headrace_registry.commands"
_LAKE = "headrace_lake.commands"
_MACHINES = ".machines"
_PLACEMENT = ".placement"
_BACKUPS = ".backups"


class Command(NamedTuple):
    """A command, with its line in `headrace --help`, and the package of its module, which has the
    command's name; where that starts with a dot it is below the package of the commands."""

    name: str
    summary: str
    package: str = ""

    def load(self) -> CommandModule:
        """UsageError for a command of the repository where only the package is installed."""
        top = self.package.partition(".")[0]
        if top and importlib.util.find_spec(top) is None:
            raise UsageError(
                f"'{top}' is not installed with Headrace: run this command in a clone of its "
                f"repository, where it is the directory {top}/"
            )
        name = f"{self.package}.{self.name.replace('-', '_')}"
        module: CommandModule = importlib.import_module(name, _COMMANDS)
        return module


COMMANDS = (
    Command("up", "start a local cluster, with its own ZooKeeper, in a directory", _LOCAL),
    Command("status", "show the brokers, the controller and the topics of a local cluster", _LOCAL),
    Command("top", "show the rates, lag and problems of a cluster in the terminal", _CONSOLE),
    Command("stop-broker", "shut one broker of a local cluster down cleanly", _LOCAL),
    Command("start-broker", "start a stopped or killed broker of a local cluster again", _LOCAL),
    Command("down", "stop a local cluster and keep its data", _LOCAL),
    Command("broker", "run one broker from its server.properties, in the foreground"),
    Command("zookeeper", "run one ZooKeeper server, alone or of an ensemble", _MACHINES),
    Command("machine", "lay out a broker for each core of a machine, and run them", _MACHINES),
    Command("size", "say how many brokers, cores, disks and memory a load needs", _MACHINES),
    Command("topics", "create, list, describe, alter and delete topics"),
    Command("groups", "list, describe, reset and delete consumer groups"),
    Command("users", "list, add and remove users that log in with SCRAM", _ACCESS),
    Command("acls", "list, add, remove and copy access rules (ACLs)", _ACCESS),
    Command(
        "quotas", "list, set and remove the quotas of users, client ids and addresses", _ACCESS
    ),
    Command("get-offsets", "show the earliest and latest offsets of partitions"),
    Command("reassign", "move partitions to other brokers"),
    Command("cordon", "have a broker or machine take no new replicas", _PLACEMENT),
    Command("uncordon", "let a cordoned broker or machine take new replicas again", _PLACEMENT),
    Command("drain", "move all leaders and replicas away from a broker or machine", _PLACEMENT),
    Command("rebalance", "even out replicas, bytes, leaders or rates of brokers", _PLACEMENT),
    Command("features", "show the features of a cluster, and raise or lower their levels"),
    Command("elect-preferred", "make the preferred replicas of partitions their leaders"),
    Command("produce", "write each line of stdin to a topic as a record"),
    Command("consume", "print the records of a topic"),
    Command("export", "copy topics into Parquet files"),
    Command("console", "show and change a cluster in a web page", _CONSOLE),
    Command("registry", "run a schema registry with Confluent's REST interface", _REGISTRY),
    Command("schemas", "list, show, check, register and delete schemas of a registry", _REGISTRY),
    Command("lake", "write topics into Delta tables, exactly once", _LAKE),
    Command("mirror", "copy topics from other clusters continuously, exactly once"),
    Command("backup", "copy a running cluster into a folder or an object store", _BACKUPS),
    Command("restore", "restore a backup into an empty cluster", _BACKUPS),
    Command("verify", "check that a backup is whole, or that a cluster holds it", _BACKUPS),
    Command("replay-dead-letters", "send dead letters back to the topics they came from"),
    Command("dump-log", "print and check the batches and indexes of segment files"),
    Command("merge-state-log", "merge the state-change logs of several brokers by time"),
    Command("simulate", "test brokers in simulated time with injected faults", "simulation"),
    Command("verify-replicas", "check that the replicas of partitions hold the same records"),
    Command("spark-check", "check that Spark on this machine can use the format headrace"),
    Command("bench", "run a benchmark of the repository", "benchmarks"),
)

_EPILOG = """\
examples:
  headrace up --dir ./cluster --detach
  headrace topics create flights --bootstrap-server 127.0.0.1:9092 --partitions 3
  echo hello | headrace produce flights --bootstrap-server 127.0.0.1:9092
  headrace consume flights --bootstrap-server 127.0.0.1:9092 --max 1
  headrace down --dir ./cluster

'headrace COMMAND --help' describes a command and its options.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Raises SystemExit only where argparse does (--help, wrong usage).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # Names and help have characters that a terminal of another encoding has not.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
    except (OutputClosedError, BrokenPipeError) as error:
        if isinstance(error, BrokenPipeError) and not _is_stdout_closed():
            _complain(str(error))
            return FAILED
        _silence_stdout()
        return DONE
    except UsageError as error:
        _complain(str(error))
        return WRONG_USAGE
    except HeadraceError as error:
        _complain(str(error))
        return FAILED
    except OSError as error:
        _complain(_os_error_text(error))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _dispatch(arguments: list[str]) -> int:
    names = [command.name for command in COMMANDS]
    if not arguments or arguments[0].startswith("-"):
        return _without_command(arguments)
    name = arguments[0]
    found = next((command for command in COMMANDS if command.name == name), None)
    if found is None:
        import difflib  # Only for a name that is wrong.

        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "'headrace --help' lists the commands"
        raise UsageError(f"there is no command '{name}'; {hint}")
    module = found.load()
    parser = argparse.ArgumentParser(
        prog=f"headrace {found.name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    return module.run(parser.parse_args(arguments[1:]))


def _without_command(arguments: list[str]) -> int:
    width = max(len(command.name) for command in COMMANDS)
    listing = "\n".join(f"  {command.name:{width}}  {command.summary}" for command in COMMANDS)
    parser = argparse.ArgumentParser(
        prog="headrace",
        usage="headrace COMMAND [ARGUMENT]…",
        description=f"A replicated log that speaks Kafka's protocol.\n\ncommands:\n{listing}",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    from storage_engine import __version__

    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    parser.parse_args(arguments)
    parser.print_help(sys.stderr)
    return WRONG_USAGE


def _complain(text: str) -> None:
    print(f"headrace: {printable(' '.join(text.split()))}", file=sys.stderr)


def _os_error_text(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def _is_stdout_closed() -> bool:
    """Whether it was our standard output that broke, and not a connection."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return True
    return False


def _silence_stdout() -> None:
    """Python flushes stdout when it exits; into a closed pipe that would print an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _WithoutPandas:
    """Keeps pandas from being imported: no process of ours uses a data frame, but pyarrow imports
    pandas, where it is installed, with the first value that it takes from Python. That costs every
    broker and every command half a second of processor time and 40 MiB, and a broker serves nobody
    meanwhile.
    """

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("this process does without pandas", name=name)


if __name__ == "__main__":
    sys.meta_path.insert(0, _WithoutPandas)
    sys.exit(main())
