"""The lines of JSON from a broker to its watcher: how to reach ZooKeeper, and each session."""

import json
from dataclasses import dataclass, field, fields

from storage_engine.broker.watcher import NO_SESSION
from storage_engine.core.security.security_protocol import Secret
from storage_engine.core.settings.zookeeper_settings import ZooKeeperTls
from storage_engine.zookeeper.session_credentials import SessionCredentials


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedBroker:
    """The broker that is watched, and the way to its session."""

    broker_id: int
    pid: int
    connect: str
    """zookeeper.connect."""
    session_timeout_ms: int
    log_file: str | None
    """The broker's; None: it logs to stderr."""
    tls: ZooKeeperTls | None = field(default=None, repr=False)

    def encode(self) -> bytes:
        plain: dict[str, object] = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.tls is not None:
            of_tls = {each.name: getattr(self.tls, each.name) for each in fields(self.tls)}
            plain["tls"] = {
                name: value.reveal() if isinstance(value, Secret) else value
                for name, value in of_tls.items()
            }
        return _line(plain)

    @classmethod
    def decode(cls, line: bytes) -> "WatchedBroker":
        plain = json.loads(line)
        tls = plain.pop("tls")
        if tls is None:
            return cls(**plain)
        for name, value in tls.items():
            if isinstance(value, list):
                tls[name] = tuple(value)
            elif value is not None and name.endswith("_password"):
                tls[name] = Secret(value)
        return cls(**plain, tls=ZooKeeperTls(**tls))


def session_line(credentials: SessionCredentials | None) -> bytes:
    """The present session; None: the broker has closed its last one."""
    if credentials is None:
        return NO_SESSION + b"\n"
    return _line({"session_id": credentials.session_id, "password": credentials.password.hex()})


def session_of(line: bytes) -> SessionCredentials:
    """Decode a line of `session_line` that has a session."""
    plain = json.loads(line)
    return SessionCredentials(
        session_id=plain["session_id"], password=bytes.fromhex(plain["password"])
    )


def _line(plain: dict[str, object]) -> bytes:
    return json.dumps(plain).encode() + b"\n"
