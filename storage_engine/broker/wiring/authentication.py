"""Builds the log-ins of clients at this broker's listeners."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from storage_engine.broker.authentication.sasl_gate import (
    MechanismParts,
    OfferedMechanisms,
    SaslGate,
)
from storage_engine.broker.authentication.sasl_log_in import LogInLimits
from storage_engine.broker.authentication.scram_users import ScramUsers, agree_on_decoy_key
from storage_engine.broker.wiring.parts import BrokerPorts
from storage_engine.core.security.sasl_server import ScramDecoys
from storage_engine.zookeeper.flow import Flows, ZookeeperFlows


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationParts:
    """The gate of log-ins, and the users and mechanisms that it uses."""

    ports: BrokerPorts
    gate: SaslGate
    scram_users: ScramUsers
    offered: tuple[OfferedMechanisms, ...]
    flows: Flows = field(default_factory=Flows)

    def start(self, then: Callable[[], None]) -> None:
        """Call `then` when everything but the users is known. Log-ins begin with `gate.open`, when
        the users are known, too."""
        for each in self.offered:
            each.start()
        if not self.ports.config.sasl.uses_scram:
            then()
            return

        def agreed(key: bytes) -> None:
            self.scram_users.use_decoys(ScramDecoys(key))
            then()

        zookeeper = ZookeeperFlows(self.ports.metadata_store)
        self.flows.start(agree_on_decoy_key(zookeeper, self.ports.scheduler), agreed)

    def close(self) -> None:
        self.flows.close()
        for each in self.offered:
            each.close()


def build_authentication(ports: BrokerPorts) -> AuthenticationParts:
    """Raises ConfigError where a file that settings name has the wrong format."""
    config = ports.config
    scram_users = ScramUsers(ScramDecoys(secrets.token_bytes(32)))
    mechanism_parts = MechanismParts(
        config=config,
        scram_users=scram_users,
        scheduler=ports.scheduler,
        clock=ports.clock,
        background=ports.background,
    )
    offered = {
        name: OfferedMechanisms(name, listener, mechanism_parts)
        for name, listener in config.sasl.listeners.items()
    }
    gate = SaslGate(
        {name: each.by_name for name, each in offered.items()},
        scheduler=ports.scheduler,
        clock=ports.clock,
        limits=LogInLimits(
            token_max_bytes=config.integer("sasl.server.max.receive.size"),
            failed_delay_ms=config.integer("connection.failed.authentication.delay.ms"),
        ),
    )
    return AuthenticationParts(
        ports=ports, gate=gate, scram_users=scram_users, offered=tuple(offered.values())
    )
