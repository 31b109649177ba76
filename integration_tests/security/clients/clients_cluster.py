"""A broker with a listener for each way in, and the settings of clients that come by one."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from integration_tests.security.clients import cells
from integration_tests.security.clients.cells import LISTENERS, Cell
from integration_tests.security.secured_cluster import (
    PLAIN_SECRET,
    SECRET,
    SecuredCluster,
    properties_file,
)
from integration_tests.security.tls_files import TlsFiles
from integration_tests.support.brokers_by_hand import HOST, brokers_by_hand
from storage_engine.client import Admin, NewTopic

TOPIC = "t"
BOTH = "TLSv1.2,TLSv1.3"
BRIEF = "BRIEF"
"""A listener of SASL_SSL at which a session lasts two seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What a client is given, in no client's language."""

    servers: str
    protocol: str
    mechanism: str | None
    user: str
    password: str
    token: str
    authority_file: str
    certificate_file: str | None
    """With its key."""


class ClientsCluster(SecuredCluster):
    """What clients need of it."""

    ours: TlsFiles
    theirs: TlsFiles
    certificates: dict[str | None, str | None]
    """Of a client, by what is wrong."""

    def way(self, cell: Cell, *, listener: str | None = None) -> Way:
        """For a client of that cell; at its listener, if there is no other."""
        is_wrong = cell.problem == cells.WRONG_SECRET
        user, password = ("alice", PLAIN_SECRET) if cell.mechanism == "PLAIN" else ("bob", SECRET)
        good = self.certificates[None]
        trusted = self.theirs if cell.problem == cells.UNKNOWN_BROKER else self.ours
        return Way(
            servers=self.brokers.bootstrap(listener or cell.listener),
            protocol="SSL" if cell.mechanism is None else "SASL_SSL",
            mechanism=cell.mechanism,
            user=user,
            password="wrong" if is_wrong else password,
            token=_forged(user) if is_wrong else self.token(user),
            authority_file=trusted.authority_file,
            certificate_file=self.certificates.get(cell.problem, good) if cell.asks else None,
        )


@contextlib.contextmanager
def clients_cluster(folder: Path, *, protocols: str = BOTH) -> Iterator[ClientsCluster]:
    """Gone after the block. Who is let in may do everything. `protocols`: of TLS."""
    with brokers_by_hand(folder, ["OPEN", BRIEF, *LISTENERS]) as by_hand:
        cluster = ClientsCluster(folder, by_hand)
        by_hand.start(1, {**_settings(cluster), "ssl.enabled.protocols": protocols})
        cluster.add_user("bob", SECRET)
        with Admin({"bootstrap.servers": by_hand.bootstrap("OPEN")}) as admin:
            admin.create_topics([NewTopic(name=TOPIC, partitions=1, replication_factor=1)])
        yield cluster


def _settings(cluster: ClientsCluster) -> dict[str, str]:
    folder = cluster.folder
    cluster.ours = ours = TlsFiles(folder, "ours")
    cluster.theirs = theirs = TlsFiles(folder, "theirs")
    name = "app@example.org"
    cluster.certificates = {
        None: ours.issue("client.pem", name),
        cells.NO_CERTIFICATE: None,
        cells.UNKNOWN_CLIENT: theirs.issue("stranger.pem", name),
        cells.EXPIRED_CLIENT: ours.issue("old-client.pem", name, expired=True),
    }
    protocols = {"OPEN": "PLAINTEXT", BRIEF: "SASL_SSL"}
    protocols |= {each: "SSL" if each.startswith("TLS") else "SASL_SSL" for each in LISTENERS}
    stores = {
        "OTHER": ours.issue("other.pem", "other.example"),
        "OLD": ours.issue("old.pem", HOST, expired=True),
    }
    users = properties_file(folder / "users.properties", {"alice": PLAIN_SECRET})
    settings = {
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in protocols.items()
        ),
        "inter.broker.listener.name": "OPEN",
        "ssl.keystore.location": ours.issue("broker.pem", HOST),
        "ssl.truststore.location": ours.authority_file,
        "sasl.enabled.mechanisms": ",".join(cells.MECHANISMS),
        "sasl.plain.users.file": str(users),
        "sasl.oauthbearer.jwks.endpoint.url": cluster.write_key_set().as_uri(),
        f"listener.name.{BRIEF.lower()}.connections.max.reauth.ms": "2000",
        "connection.failed.authentication.delay.ms": "100",
        "offsets.topic.replication.factor": "1",
    }
    for listener in LISTENERS:
        prefix = f"listener.name.{listener.lower()}.ssl"
        if "_ASKS" in listener:
            settings[f"{prefix}.client.auth"] = "required"
        store = stores.get(listener.rpartition("_")[2])
        if store is not None:
            settings[f"{prefix}.keystore.location"] = store
    return settings


def _forged(name: str) -> str:
    """A token that is signed with another key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return jwt.encode(
        {"sub": name, "exp": 4_000_000_000}, key, algorithm="RS256", headers={"kid": "1"}
    )
