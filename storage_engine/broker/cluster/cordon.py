"""Carries out `cordoned.log.dirs`: new replicas go to other log dirs, and where all are cordoned
the broker's registration says that it takes none. Source: R-REP13, KIP-1066.
"""

import logging

from storage_engine.broker.cluster.registration import Registration
from storage_engine.broker.settings.cordoned_log_dirs import check_cordoned, named_log_dirs
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.core.placement import CORDONED_LOG_DIRS
from storage_engine.log.dirs.log_dirs import LogDirs

log = logging.getLogger(__name__)


class Cordon:
    """Applies the setting at the start and whenever it was read."""

    def __init__(
        self, config: DynamicConfig, *, log_dirs: LogDirs, registration: Registration
    ) -> None:
        self._config = config
        self._log_dirs = log_dirs
        self._registration = registration

    def start(self) -> None:
        self._config.checks.append(self._check)
        self._config.on_read.append(self._apply)
        self._apply()

    def _check(self, trial: DynamicConfig) -> None:
        check_cordoned(trial.items(CORDONED_LOG_DIRS), self._config.static.log_dirs)

    def _apply(self) -> None:
        configured = self._config.static.log_dirs
        # What was stored for all brokers may name log dirs that this one does not have.
        cordoned = named_log_dirs(self._config.items(CORDONED_LOG_DIRS), configured)
        if cordoned != self._log_dirs.cordoned:
            log.info("log dirs that take no new replicas: %s", sorted(map(str, cordoned)) or "none")
            self._log_dirs.cordoned = cordoned
        self._registration.set_cordoned(len(cordoned) == len(configured))
