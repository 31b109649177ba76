"""Settings that were given and have no effect: a line in the log says why."""

import logging
from collections.abc import Iterable, Mapping

from storage_engine.core.settings.setting import Setting

log = logging.getLogger(__name__)


def log_without_effect(names: Iterable[str], table: Mapping[str, Setting], *, where: str) -> None:
    """`where` the settings are given: "server.properties", "topic 't'"."""
    for name in sorted(names):
        setting = table.get(name)
        if setting is not None and setting.without_effect:
            log.warning("%s of %s has no effect: %s", name, where, setting.without_effect)
