"""The folder of a ZooKeeper server for production, and the command line that runs it there.

    D/zoo.cfg            the configuration, sealed: a change by hand is noticed
    D/myid               the id of a server of an ensemble
    D/log4j2.properties  warnings and errors go to stderr
    D/version-2/         ZooKeeper's own: transactions and snapshots
    D/.headrace.lock     held while the server runs

All files are for their owner alone. Everything is checked before anything is written.
"""

import fcntl
import ipaddress
import os
import re
import socket
import ssl
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.local.directory_lock import LOCK_FILE
from storage_engine.tools.local.secret_files import write_whole
from storage_engine.zookeeper.server.config import (
    FILE_NAME,
    EnsembleServer,
    ServerTls,
    format_settings,
    is_as_written,
    members_in,
    parse_ensemble,
    production_settings,
    sealed,
    with_overrides,
)
from storage_engine.zookeeper.server.java import find_java
from storage_engine.zookeeper.server.program import (
    MAIN_CLASS,
    check_port_is_free,
    class_path,
    production_options,
)
from storage_engine.zookeeper.session_credentials import for_owner

LOOPBACK, EVERY_ADDRESS = "127.0.0.1", "0.0.0.0"
DEFAULT_PORT = 2181
DEFAULT_HEAP = "512m"
"""A cluster of 100,000 partitions has some 100 MiB of znodes."""

_ID_FILE, _LOG_CONFIG = "myid", "log4j2.properties"
_HEAP = re.compile(r"[1-9][0-9]{0,5}[mMgG]")
_PKCS8, _ENCRYPTED = "-----BEGIN PRIVATE KEY-----", "ENCRYPTED"
_LOGGING = """\
# Written by 'headrace zookeeper': warnings and errors, to stderr.
status = error
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %p %c{1}: %enc{%m}{CRLF}%n%xEx{20}
logger.main.name = org.apache.zookeeper.server.quorum.QuorumPeerMain
# It warns of a server that is alone.
logger.main.level = error
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    """The arguments of `headrace zookeeper`."""

    directory: Path
    id: int | None = None
    ensemble: str | None = None
    port: int = DEFAULT_PORT
    listen: str | None = None
    keystore: Path | None = None
    truststore: Path | None = None
    heap: str = DEFAULT_HEAP
    settings: tuple[tuple[str, str], ...] = ()
    keeps_config: bool = False
    """Run with the `zoo.cfg` that is there, whatever the other arguments say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedServer:
    """A folder that is ready."""

    command: tuple[str, ...]
    place: str
    """Where it listens, for a line of text."""
    warnings: tuple[str, ...]
    lock: int
    """A descriptor: the folder's lock is held for as long as it is open, also after `exec`."""


def prepare(request: ServerRequest) -> PreparedServer:
    """Check the arguments and the machine, then write the files. UsageError for arguments that
    can't be right; other HeadraceErrors name what is in the way."""
    directory = request.directory.absolute()
    members, own = _members(request)
    tls = _tls(request)
    if not _HEAP.fullmatch(request.heap):
        raise UsageError(f"--heap '{request.heap}' is no size: give it as 512m or 2g")
    java = find_java()
    if request.keeps_config:
        return _as_it_is(directory, request.heap, java)
    host = request.listen or (EVERY_ADDRESS if tls else LOOPBACK)
    settings = production_settings(
        directory, host=host, port=request.port, tls=tls, members=members
    )
    text = sealed(format_settings(with_overrides(settings, request.settings)))
    command = _command(directory, request.heap, java, with_tls=tls is not None)
    lock = _lock(directory)
    try:
        warnings = _check_place(directory, members, own)
        check_port_is_free(host, request.port)
        if own is not None:
            warnings += _check_own_host(own, members)
            for port in (own.peer_port, own.election_port):
                check_port_is_free(own.host, port)
        if tls is None:
            warnings += _open_to_others(host, own)
        write_whole(directory / FILE_NAME, text.encode())
        if own is not None:
            write_whole(directory / _ID_FILE, b"%d\n" % own.id)
        write_whole(directory / _LOG_CONFIG, _LOGGING.encode())
    except BaseException:
        os.close(lock)
        raise
    return PreparedServer(
        command=command, place=f"{host}:{request.port}", warnings=tuple(warnings), lock=lock
    )


def _as_it_is(directory: Path, heap: str, java: Path) -> PreparedServer:
    """With the `zoo.cfg` of the folder, which may ask for TLS or not."""
    config = directory / FILE_NAME
    if not config.exists():
        raise CommandError(f"--keep-config: there is no {config}; leave the option out")
    command = _command(directory, heap, java, with_tls=True)
    lock = _lock(directory)
    write_whole(directory / _LOG_CONFIG, _LOGGING.encode())
    return PreparedServer(command=command, place=f"the ports of {config}", warnings=(), lock=lock)


def _command(directory: Path, heap: str, java: Path, *, with_tls: bool) -> tuple[str, ...]:
    options = production_options(directory, heap=heap, log_config=directory / _LOG_CONFIG)
    jars = class_path(with_tls=with_tls, with_log=True)
    return (str(java), *options, "-cp", jars, MAIN_CLASS, str(directory / FILE_NAME))


def _members(request: ServerRequest) -> tuple[tuple[EnsembleServer, ...], EnsembleServer | None]:
    """The ensemble, and this server in it."""
    if request.ensemble is None:
        if request.id is not None:
            raise UsageError("--id names a server of an ensemble: give --ensemble, too")
        return (), None
    members = parse_ensemble(request.ensemble)
    if request.id is None:
        raise UsageError("--ensemble needs --id, the server that runs here")
    own = next((member for member in members if member.id == request.id), None)
    if own is None:
        ids = ", ".join(str(member.id) for member in members)
        raise UsageError(f"--id {request.id} is no server of --ensemble, which has {ids}")
    return members, own


def _tls(request: ServerRequest) -> ServerTls | None:
    if request.keystore is None and request.truststore is None:
        return None
    if request.keystore is None or request.truststore is None:
        raise UsageError(
            "--tls-keystore and --tls-truststore belong together: the server's key with its "
            "certificate, and the authority of those who may connect"
        )
    keystore, truststore = request.keystore.absolute(), request.truststore.absolute()
    text = _key_text(keystore)
    if _ENCRYPTED in text:
        raise CommandError(
            f"--tls-keystore {keystore} has an encrypted key, for which a server that starts "
            "by itself has no password: give one without (openssl pkcs8 -topk8 -nocrypt)"
        )
    if _PKCS8 not in text:
        raise CommandError(
            f"--tls-keystore {keystore} has no key in PKCS#8, the form that Java reads: make one "
            "with 'openssl pkcs8 -topk8 -nocrypt' and append the certificate"
        )
    tls = ServerTls(keystore=keystore, truststore=truststore)
    try:
        tls.context()
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(
            f"--tls-keystore {keystore} and --tls-truststore {truststore} can't be used: {reason}"
        ) from None
    return tls


def _key_text(keystore: Path) -> str:
    try:
        mode = stat.S_IMODE(keystore.stat().st_mode)
        text = keystore.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise CommandError(f"--tls-keystore {keystore} can't be read: {error.strerror}") from None
    if mode & 0o077:
        raise CommandError(
            f"--tls-keystore {keystore} has a key that others may read: chmod 600 {keystore}"
        )
    return text


def _lock(directory: Path) -> int:
    """The descriptor stays open in the program that replaces this one."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(directory / LOCK_FILE, "a", opener=for_owner) as file:
            descriptor = os.dup(file.fileno())
    except OSError as error:
        raise CommandError(
            f"ZooKeeper's data directory {directory} can't be written ({error.strerror})"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise CommandError(
            f"a ZooKeeper runs already on {directory}: stop it first, or give another --dir"
        ) from None
    os.set_inheritable(descriptor, True)
    return descriptor


def _check_place(
    directory: Path,
    members: Sequence[EnsembleServer],
    own: EnsembleServer | None,
) -> list[str]:
    """CommandError where the folder belongs to another server, or its configuration is somebody's
    own. Return warnings."""
    config = directory / FILE_NAME
    present = config.read_text(encoding="utf-8") if config.exists() else None
    if present is None:
        if own is not None and (directory / "version-2").exists():
            raise _alone(directory)
        return []
    if not is_as_written(present):
        raise CommandError(
            f"{config} was changed by hand: keep it with --keep-config, or remove it to have it "
            "written anew (--set KEY=VALUE gives a setting of your own)"
        )
    before = members_in(present)
    if own is None:
        if before:
            number = _id_in(directory)
            raise CommandError(
                f"{directory} is server {number} of an ensemble of {len(before)}: give --id "
                f"{number} and --ensemble, or another --dir"
            )
        return []
    if not before:
        raise _alone(directory)
    number = _id_in(directory)
    if number not in (None, own.id):
        raise CommandError(
            f"{directory} is server {number} of its ensemble, not {own.id}: give --id {number}, "
            "or another --dir"
        )
    now = {member.id: member.address for member in members}
    if set(now) != set(before):
        return [
            f"the ensemble had the servers {_ids(before)} and has {_ids(now)} now: give every "
            "server the same --ensemble, one after another"
        ]
    return []


def _alone(directory: Path) -> CommandError:
    return CommandError(
        f"{directory} has the data of a ZooKeeper of its own, which others of an ensemble could "
        "outvote and lose: give an empty --dir"
    )


def _ids(members: "dict[int, str]") -> str:
    return ", ".join(map(str, sorted(members)))


def _id_in(directory: Path) -> int | None:
    try:
        return int((directory / _ID_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _check_own_host(own: EnsembleServer, members: Sequence[EnsembleServer]) -> list[str]:
    """The peers' addresses must lead here: Debian gives a host's own name a loopback address."""
    try:
        found = socket.getaddrinfo(own.host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise CommandError(
            f"the host '{own.host}' of server {own.id} has no address here ({error.strerror}): "
            "correct --ensemble, or the machine's /etc/hosts"
        ) from None
    is_loopback = all(ipaddress.ip_address(each[4][0]).is_loopback for each in found)
    if is_loopback and len({member.host for member in members}) > 1:
        return [
            f"'{own.host}' is {found[0][4][0]} on this machine, where other machines can't reach "
            "it: give its address in /etc/hosts, or in --ensemble"
        ]
    return []


def _open_to_others(host: str, own: EnsembleServer | None) -> list[str]:
    places = [each for each in (host, own and own.host) if each and not _is_loopback(each)]
    if not places:
        return []
    return [
        f"without TLS whoever reaches {' or '.join(dict.fromkeys(places))} may end every session "
        "and change everything: give --tls-keystore and --tls-truststore, or keep strangers out "
        "with a firewall"
    ]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
