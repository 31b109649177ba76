"""How many connections an address may have, as the settings say while the broker runs."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from storage_engine.broker.settings.config import (
    OVERRIDES_KEY,
    by_address,
    parse_overrides,
)
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.core.ports import Background
from storage_engine.net.server import Server

log = logging.getLogger(__name__)

PER_IP_KEY = "max.connections.per.ip"


class _Limits(NamedTuple):
    per_ip: int
    overrides: Mapping[str, int]
    """By the hosts that are named."""


class AddressLimits:
    """Gives a server the limits of addresses anew whenever they are others. Who has more
    connections than that keeps them."""

    def __init__(self, server: Server, config: DynamicConfig, background: Background) -> None:
        self._server = server
        self._config = config
        self._background = background
        static = config.static
        self._taken = _Limits(static.integer(PER_IP_KEY), static.per_ip_overrides)

    def start(self) -> None:
        self._config.checks.append(self._check)
        self._config.on_read.append(self._read_again)
        self._read_again()

    def _check(self, trial: DynamicConfig) -> None:
        """ConfigError for overrides of another form."""
        self._wanted(trial)

    def _wanted(self, config: DynamicConfig) -> _Limits:
        overrides = parse_overrides(config.items(OVERRIDES_KEY))
        return _Limits(config.integer(PER_IP_KEY), overrides)

    def _read_again(self) -> None:
        wanted = self._wanted(self._config)
        if wanted == self._taken:
            return
        self._taken = wanted
        # A name is looked up, which may take long.
        self._background.submit(
            lambda: by_address(dict(wanted.overrides)),
            lambda overrides: self._take(wanted, overrides),
            lambda failure: log.error("limits of addresses not taken: %s", failure),
        )

    def _take(self, wanted: _Limits, overrides: Mapping[str, int]) -> None:
        if wanted is self._taken:
            self._server.limit_addresses(wanted.per_ip, overrides)
            log.info("limits of addresses taken most=%d overrides=%s", wanted.per_ip, overrides)
