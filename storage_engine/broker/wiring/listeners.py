"""The listeners of a broker as its server serves them, all over one dispatcher."""

from collections.abc import Callable
from dataclasses import replace

from storage_engine.broker.settings.listener import Listener
from storage_engine.broker.wiring.build import BrokerParts
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import SecurityProtocol
from storage_engine.net.served_listener import ServedListener


def served_listeners(parts: BrokerParts) -> list[ServedListener]:
    """What the settings name. ConfigError for a protocol that can't be served."""
    return [_MAKERS[each.protocol](each, parts) for each in parts.ports.config.listeners.listening]


def _plaintext(listener: Listener, parts: BrokerParts) -> ServedListener:
    return ServedListener(
        name=listener.name,
        host=listener.host,
        port=listener.port,
        handle=parts.dispatcher,
        handle_run=parts.produce_runs,
    )


def _sasl_plaintext(listener: Listener, parts: BrokerParts) -> ServedListener:
    return replace(_plaintext(listener, parts), on_opened=parts.authentication.gate.opened)


def _not_served(listener: Listener, _parts: BrokerParts) -> ServedListener:
    raise ConfigError(f"listeners={listener}: {listener.protocol.name} is not served yet")


_MAKERS: dict[SecurityProtocol, Callable[[Listener, BrokerParts], ServedListener]] = {
    SecurityProtocol.PLAINTEXT: _plaintext,
    SecurityProtocol.SSL: _not_served,
    SecurityProtocol.SASL_PLAINTEXT: _sasl_plaintext,
    SecurityProtocol.SASL_SSL: _not_served,
}
