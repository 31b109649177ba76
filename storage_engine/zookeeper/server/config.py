"""`zoo.cfg`, the configuration of a ZooKeeper server: alone or one of an ensemble, open or with
TLS.

Decides what is written and writes nothing. A server with TLS has no port without it, and serves
only clients whose certificate its authority has signed: whoever reaches a ZooKeeper can end all
sessions. So do its peers in an ensemble.
"""

import hashlib
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage_engine.core.errors import HeadraceError

FILE_NAME = "zoo.cfg"
PEER_PORT, ELECTION_PORT = 2888, 3888
"""The ports between the servers of an ensemble: those that ZooKeeper's documents have."""
MOST_MEMBERS = 9
HIGHEST_ID = 255

TICK_MS = 200
"""Sessions expire on multiples of it."""
MIN_SESSION_TIMEOUT_MS = 1_000
MAX_SESSION_TIMEOUT_MS = 60_000
INIT_TICKS = 50
"""A follower that was away may load the data for ten seconds."""
SYNC_TICKS = 10
"""A leader or follower from which nothing was heard for 2 s is given up."""
MOST_CONNECTIONS_OF_AN_ADDRESS = 400
"""A machine may have a hundred brokers, each with a session and, when it ends, one that closes it;
tools and restarts come on top."""
MOST_CONNECTIONS = 5_000
"""The most of all addresses together: what a heap of 512 MiB bears."""
SNAPSHOT_TRANSACTIONS = 100_000
KEPT_SNAPSHOTS = 3

_DECIDED = (
    *("dataDir", "clientPort", "secureClientPort", "server.", "sslQuorum"),
    *("ssl.keyStore", "ssl.trustStore", "ssl.clientAuth", "ssl.hostname", "ssl.quorum."),
)
"""The beginnings of settings that the command's other options decide."""

_SEAL = "# Written by 'headrace zookeeper', which gives other settings with --set. Checksum: "


class ServerConfigError(HeadraceError):
    """The configuration of a ZooKeeper server can't be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleServer:
    """A server of an ensemble."""

    id: int
    host: str
    peer_port: int = PEER_PORT
    election_port: int = ELECTION_PORT

    @property
    def address(self) -> str:
        return f"{self.host}:{self.peer_port}:{self.election_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """The PEM files of a server that serves TLS only."""

    keystore: Path
    """The server's key in PKCS#8 and its certificate; the server trusts it, too."""
    truststore: Path
    """The authority of the certificates that clients and peers need."""

    def stores(self, prefix: str = "") -> dict[str, str]:
        """The settings of these files; with `prefix` those of the ports between servers."""
        return {
            f"ssl.{prefix}keyStore.location": str(self.keystore),
            f"ssl.{prefix}keyStore.type": "PEM",
            f"ssl.{prefix}trustStore.location": str(self.truststore),
            f"ssl.{prefix}trustStore.type": "PEM",
            f"ssl.{prefix}clientAuth": "need",
            # The authority identifies whoever connects, wherever it connects from.
            f"ssl.{prefix}hostnameVerification": "false",
        }

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a client with the server's own certificate, for any name."""
        context = ssl.create_default_context(cafile=self.truststore)
        context.check_hostname = False
        context.load_cert_chain(self.keystore)
        return context


def client_port(host: str, port: int, tls: ServerTls | None) -> dict[str, str]:
    """The settings of the one port for clients."""
    if tls is None:
        return {"clientPort": str(port), "clientPortAddress": host}
    return {
        "secureClientPort": str(port),
        "secureClientPortAddress": host,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        **tls.stores(),
    }


def common_settings(data_dir: Path) -> dict[str, str]:
    """The settings of every server that we run."""
    return {
        "maxSessionTimeout": str(MAX_SESSION_TIMEOUT_MS),
        "minSessionTimeout": str(MIN_SESSION_TIMEOUT_MS),
        "dataDir": str(data_dir),
        # Its web server needs more jars, and would be one more door.
        "admin.enableServer": "false",
        "autopurge.snapRetainCount": str(KEPT_SNAPSHOTS),
        "autopurge.purgeInterval": "1",
    }


def production_settings(
    data_dir: Path,
    *,
    host: str,
    port: int,
    tls: ServerTls | None,
    members: Sequence[EnsembleServer],
) -> dict[str, str]:
    """The settings of a server alone (`members` empty), or of one of an ensemble."""
    settings = {
        "tickTime": str(TICK_MS),
        **common_settings(data_dir),
        **client_port(host, port, tls),
        "maxClientCnxns": str(MOST_CONNECTIONS_OF_AN_ADDRESS),
        "maxCnxns": str(MOST_CONNECTIONS),
        "snapCount": str(SNAPSHOT_TRANSACTIONS),
        # `srvr` tells whether it serves, and who leads; the others tell strangers more.
        "4lw.commands.whitelist": "srvr",
    }
    if members:
        settings |= {"initLimit": str(INIT_TICKS), "syncLimit": str(SYNC_TICKS)}
        if tls is not None:
            settings |= {"sslQuorum": "true", **tls.stores("quorum.")}
        settings |= {f"server.{member.id}": member.address for member in members}
    return settings


def parse_ensemble(text: str) -> tuple[EnsembleServer, ...]:
    """`1=h1,2=h2,3=h3`, each host with ports if need be (`1=h1:2888:3888`); ServerConfigError for
    anything else."""
    members = tuple(_member(part.strip(), text) for part in text.split(","))
    ids = [member.id for member in members]
    if len(set(ids)) < len(ids):
        raise ServerConfigError(f"--ensemble '{text}' has an id twice: give each server its own")
    addresses = {(m.host, port) for m in members for port in (m.peer_port, m.election_port)}
    if len(addresses) < 2 * len(members):
        raise ServerConfigError(
            f"--ensemble '{text}' has an address twice: servers on one host need ports of their "
            "own, as in 1=h1:2888:3888,2=h1:2889:3889"
        )
    if not 3 <= len(members) <= MOST_MEMBERS:
        raise ServerConfigError(
            f"--ensemble '{text}' has {len(members)} servers: give 3 to {MOST_MEMBERS} (3 bear "
            "the loss of one), or leave --ensemble out for a server of its own"
        )
    return members


def _member(part: str, text: str) -> EnsembleServer:
    number, equals, address = part.partition("=")
    host, *ports = address.split(":")
    is_whole = number.isascii() and all(each.isascii() for each in ports)
    if not (equals and host and is_whole and number.isdigit() and len(ports) in (0, 2)):
        raise _malformed(text)
    if not all(port.isdigit() and 0 < int(port) <= 65_535 for port in ports):
        raise _malformed(text)
    if not 1 <= int(number) <= HIGHEST_ID:
        raise ServerConfigError(f"--ensemble '{text}': the ids of servers are 1 to {HIGHEST_ID}")
    peer, election = (int(port) for port in ports or (PEER_PORT, ELECTION_PORT))
    return EnsembleServer(id=int(number), host=host, peer_port=peer, election_port=election)


def _malformed(text: str) -> ServerConfigError:
    return ServerConfigError(
        f"--ensemble '{text}' is not of the form 1=HOST,2=HOST,3=HOST "
        "(or 1=HOST:PEER_PORT:ELECTION_PORT,…)"
    )


def with_overrides(
    settings: Mapping[str, str], overrides: Sequence[tuple[str, str]]
) -> dict[str, str]:
    """The settings with those of `--set`; ServerConfigError for one that another option decides."""
    result = dict(settings)
    for key, value in overrides:
        if key.startswith(_DECIDED):
            raise ServerConfigError(
                f"'--set {key}=…' is decided by --dir, --client-port, --listen, --ensemble and "
                "--tls-…: give these instead"
            )
        result[key] = value
    return result


def format_settings(settings: Mapping[str, str]) -> str:
    """Java's `.properties` syntax: backslashes, which escape characters there, are doubled."""
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in settings.items())


def sealed(text: str) -> str:
    """The text with a first line by which a change by hand is noticed."""
    return f"{_SEAL}{_checksum(text)}\n{text}"


def is_as_written(content: str) -> bool:
    """Whether `content` is what `sealed` gave."""
    first, _, rest = content.partition("\n")
    return first == _SEAL + _checksum(rest)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def members_in(content: str) -> dict[int, str]:
    """The servers of the ensemble in a `zoo.cfg`, by id; empty for a server of its own."""
    found = {}
    for line in content.splitlines():
        key, _, value = line.partition("=")
        number = key.strip().removeprefix("server.")
        if key.strip().startswith("server.") and number.isdigit():
            found[int(number)] = value.strip()
    return found
