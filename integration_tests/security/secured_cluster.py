"""Brokers with a listener of each security protocol, a certificate authority, and users."""

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jwt
import trustme
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa

from integration_tests.support.brokers_by_hand import BrokersByHand, brokers_by_hand
from integration_tests.support.cluster_support import wait_until
from storage_engine.client import Admin, NewTopic
from storage_engine.client.admin.access_rules import describe_rules
from storage_engine.client.cluster import Cluster
from storage_engine.core.security.acl_rules import AclBinding

SECRET = "s3cret-of-bob"
PLAIN_SECRET = "s3cret-of-alice"
LISTENERS = ["OPEN", "MTLS", "SASL", "BOTH", "BRIEF"]

_PROTOCOLS = {
    "OPEN": "PLAINTEXT",
    "MTLS": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "BRIEF": "SASL_PLAINTEXT",
}
"""OPEN is for the brokers among themselves; at BRIEF a session lasts two seconds."""

_SCRAM = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)


class SecuredCluster:
    """What clients need of it."""

    def __init__(self, folder: Path, brokers: BrokersByHand) -> None:
        self.folder = folder
        self.brokers = brokers
        self.ca_file = str(folder / "ca.pem")
        self.client_file = str(folder / "client.pem")
        self.stranger_file = str(folder / "stranger.pem")
        self.token_file = folder / "token"
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def config(self, listener: str, **more: str) -> dict[str, str]:
        """Settings of a client at that listener, in Kafka's names; `_` for the dots in `more`."""
        named = {key.replace("_", "."): text for key, text in more.items()}
        place = {"bootstrap.servers": self.brokers.bootstrap(listener)}
        tls = {"ssl.ca.location": self.ca_file} if _PROTOCOLS[listener].endswith("SSL") else {}
        return {**place, "security.protocol": _PROTOCOLS[listener], **tls, **named}

    def bob(self, listener: str, mechanism: str = "SCRAM-SHA-512", **more: str) -> dict[str, str]:
        """A user of SCRAM."""
        return self.config(
            listener,
            sasl_mechanism=mechanism,
            sasl_username="bob",
            sasl_password=SECRET,
            **more,
        )

    def add_user(self, name: str, password: str) -> None:
        """For both mechanisms of SCRAM."""
        self._change(
            UserScramCredentialUpsertion(name, ScramCredentialInfo(each, 4096), password.encode())
            for each in _SCRAM
        )

    def remove_user(self, name: str) -> None:
        self._change(UserScramCredentialDeletion(name, each) for each in _SCRAM)

    def _change(self, changes: Iterable[UserScramCredentialAlteration]) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers.bootstrap("OPEN")})
        for change in admin.alter_user_scram_credentials(list(changes)).values():
            change.result(30)

    def write_key_set(self) -> Path:
        """The public key by which brokers judge tokens."""
        path = self.folder / "jwks.json"
        numbers = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        path.write_text(json.dumps({"keys": [{**numbers, "kid": "1", "use": "sig"}]}))
        return path

    def write_token(self, name: str, *, lifetime_s: int = 3_600) -> None:
        self.token_file.write_text(self.token(name, lifetime_s=lifetime_s))

    def token(self, name: str, *, lifetime_s: int = 3_600) -> str:
        claims = {"sub": name, "exp": int(time.time()) + lifetime_s, "iat": int(time.time())}
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "1"})


def properties_file(path: Path, config: Mapping[str, str]) -> Path:
    """The settings in a file of Java's form."""
    lines = (f"{key}={value}\n" for key, value in config.items())
    path.write_text("".join(lines))
    path.chmod(0o600)
    return path


@contextlib.contextmanager
def secured_cluster(
    folder: Path, *, brokers: int = 1, more: Mapping[str, str] | None = None
) -> Iterator[SecuredCluster]:
    """Gone after the block. Everybody may do everything, unless `more` settings have an authorizer:
    who is let in is what it is about."""
    with brokers_by_hand(folder, LISTENERS) as by_hand:
        cluster = SecuredCluster(folder, by_hand)
        settings = {**_settings(cluster), **(more or {})}
        for broker_id in range(1, brokers + 1):
            by_hand.start(broker_id, settings)
        cluster.add_user("bob", SECRET)
        with Admin({"bootstrap.servers": by_hand.bootstrap("OPEN")}) as ours:
            ours.create_topics([NewTopic(name="t", partitions=3, replication_factor=brokers)])
        yield cluster


def _settings(cluster: SecuredCluster) -> dict[str, str]:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(cluster.ca_file)
    broker_file = str(cluster.folder / "broker.pem")
    for issuer, name, path in (
        (authority, "127.0.0.1", broker_file),
        (authority, "app@example.org", cluster.client_file),
        (stranger, "app@example.org", cluster.stranger_file),
    ):
        issuer.issue_cert(name, "localhost").private_key_and_cert_chain_pem.write_to_path(path)
    users = cluster.folder / "users.properties"
    properties_file(users, {"alice": PLAIN_SECRET})
    return {
        "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in _PROTOCOLS.items()),
        "inter.broker.listener.name": "OPEN",
        "ssl.keystore.location": broker_file,
        "ssl.truststore.location": cluster.ca_file,
        "listener.name.mtls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.plain.users.file": str(users),
        "sasl.oauthbearer.jwks.endpoint.url": cluster.write_key_set().as_uri(),
        "listener.name.brief.connections.max.reauth.ms": "2000",
        "connection.failed.authentication.delay.ms": "100",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }


def _ask_one(
    cluster: Cluster, broker: int, spec: Any, message: Any, *, error_of: Callable[[Any], Any]
) -> Any:
    """In place of `Cluster.ask_any`."""
    answer = cluster.request(broker, spec, message)
    if (error := error_of(answer)) is not None:
        raise error
    return answer


def wait_until_in_force(servers: str, is_right: Callable[[list[AclBinding]], bool]) -> None:
    """Until the access rules are right by which each of the brokers goes."""

    def all_know() -> bool:
        with Cluster(servers) as asked:
            asked.refresh([])
            for broker in asked.view.brokers:
                only: Any = SimpleNamespace(ask_any=partial(_ask_one, asked, broker))
                if not is_right(describe_rules(only)):
                    return False
        return True

    wait_until(all_know, "all brokers know the rules")
