"""Run one broker in the foreground, as in production. SIGTERM and Ctrl-C shut it down cleanly.

The broker logs to stderr, or with --log-file to a file that rotates. It writes changes of leaders
and in-sync replicas to state-change.log, beside the --log-file or else in the first directory of
log.dirs; 'headrace merge-state-log' reads these files. SIGUSR1 makes the broker write the stack of
every thread to stderr.

With --environment variables are settings, too, which count above the file, where one is given:
HEADRACE_ZOOKEEPER_CONNECT is zookeeper.connect. In the name of a variable _ stands for a dot, __
for an underscore, and ___ for a hyphen.

examples:
  headrace broker conf/server.properties
  headrace broker conf/server.properties --set broker.id=2 --log-file /var/log/headrace/broker.log
  HEADRACE_BROKER_ID=2 headrace broker conf/server.properties --environment
"""

import argparse
import faulthandler
import gc
import logging
import logging.handlers
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from storage_engine.broker.settings.config import BrokerConfig, check_broker_setting
from storage_engine.broker.watcher.first_process import run_behind_first_process
from storage_engine.core.errors import ConfigError, HeadraceError
from storage_engine.core.settings.environment import setting_variables
from storage_engine.core.settings.settings import BY_BROKER_KEY, DEATH_PROOF, NO_PROOF
from storage_engine.tools.arguments import positive_integer
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.inspection.state_change_log import FILE_NAME, write_state_changes_to
from storage_engine.tools.local.broker_settings import parse_setting
from storage_engine.tools.log_format import OneLineFormatter

LOG_FILE_BYTES = 16 << 20
"""A broker logs a few lines per change of the cluster: this is weeks of a calm one."""
LOG_FILE_COUNT = 5
"""Rotated files kept beside the current one."""

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LEVELS = ("debug", "info", "warning", "error")

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace broker`."""
    parser.add_argument(
        "config",
        type=Path,
        nargs="?",
        metavar="CONFIG",
        help="the broker's server.properties; may be left out with --environment",
    )
    parser.add_argument(
        "--environment",
        action="store_true",
        help="take settings from the variables whose names begin with HEADRACE_",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting that overrides the one in CONFIG; repeatable",
    )
    parser.add_argument(
        "--log-file", type=Path, metavar="FILE", help="log to this file (default: to stderr)"
    )
    parser.add_argument(
        "--cpus",
        type=cpu_numbers,
        metavar="N[,N…]",
        help="run on these processors only (default: all that the system lets it use)",
    )
    parser.add_argument(
        "--log-file-bytes",
        type=positive_integer,
        default=LOG_FILE_BYTES,
        metavar="N",
        help=f"start a new log file when it has N bytes, and keep {LOG_FILE_COUNT} old ones "
        f"(default {LOG_FILE_BYTES})",
    )
    parser.add_argument(
        "--log-level",
        choices=_LEVELS,
        default="info",
        help="log messages of this severity and above (default: info)",
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace broker`."""
    if args.cpus is not None:
        # First of all, since threads run where those run that start them.
        run_on(args.cpus)
    if args.config is None and not args.environment:
        raise UsageError("name the broker's server.properties, or give --environment")
    given = settings_in(os.environ) if args.environment else {}
    given |= dict(parse_setting(text) for text in args.set)
    config = BrokerConfig.load(args.config, given)
    # Records and credentials are read by those alone whom access rules let.
    os.umask(0o077)
    if config.text(DEATH_PROOF) == NO_PROOF:
        return _run(args, config)
    return run_behind_first_process(lambda: _run(args, config))


def _run(args: argparse.Namespace, config: BrokerConfig) -> int:
    set_up_logging(args.log_file, file_bytes=args.log_file_bytes, level=args.log_level)
    write_state_changes_to(
        _state_change_folder(args.log_file, config.log_dirs) / FILE_NAME,
        broker_id=config.broker_id,
        file_bytes=args.log_file_bytes,
        file_count=LOG_FILE_COUNT,
    )
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    descriptors = raise_descriptor_limit()
    log.info("broker starts config=%s descriptors=%d", args.config, descriptors)
    # Imported late, because these imports take most of the start, and a wrong setting is reported
    # without them. A collection meanwhile would find no garbage, and takes a tenth of that time.
    gc.disable()
    from storage_engine.broker.main import run as run_broker

    gc.enable()
    try:
        return run_broker(config)
    except HeadraceError as error:
        log.error("%s", error)
        raise
    except Exception:
        log.critical("the broker ends after an unexpected error", exc_info=True)
        raise


def settings_in(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings in variables; ConfigError names the variable that is none, or has no good
    value."""
    given: dict[str, str] = {}
    for variable, key in setting_variables(environment, BY_BROKER_KEY).items():
        try:
            check_broker_setting(key, environment[variable])
        except ConfigError as error:
            raise ConfigError(f"{variable}: {error}") from None
        given[key] = environment[variable]
    return given


def cpu_numbers(text: str) -> frozenset[int]:
    """The numbers between the commas of `--cpus`."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of processors, such as 3 or 2,3")
    return frozenset(map(int, parts))


def run_on(cpus: frozenset[int]) -> None:
    """Keep this process to some processors; CommandError when this machine has none of them."""
    try:
        os.sched_setaffinity(0, cpus)
    except (OSError, OverflowError):
        here = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        raise CommandError(
            f"--cpus {','.join(map(str, sorted(cpus)))}: this process may use {here} only"
        ) from None


def set_up_logging(file: Path | None, *, file_bytes: int, level: str) -> None:
    """Log to a file that rotates, or to stderr."""
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            file, maxBytes=file_bytes, backupCount=LOG_FILE_COUNT, encoding="utf-8"
        )
    handler.setFormatter(OneLineFormatter(_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("kazoo").setLevel(logging.WARNING)


def _state_change_folder(log_file: Path | None, log_dirs: Sequence[Path]) -> Path:
    """The directory of the log file; without one, the first log dir that can be written, as
    far as that is known before the broker opens them."""
    if log_file is not None:
        return log_file.parent
    return next((path for path in log_dirs if os.access(path, os.W_OK)), log_dirs[0])


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one; returns what counts now.

    A broker has a descriptor per connection and up to three per segment.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return soft
    return hard
