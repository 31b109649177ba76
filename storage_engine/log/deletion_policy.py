"""Finds the policy of deletion that `log.deletion.policy` names. A name that can't be loaded is an
error when the broker starts.

    kafka               by retention.ms and retention.bytes
    <module>:<Class>    a class of the broker's Python path that has the method of
                        core.retention.DeletionPolicy, made without arguments

Source: R-LOG9.
"""

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from storage_engine.core.errors import ConfigError
from storage_engine.core.retained.retention import DeletionPolicy, KafkaDeletionPolicy

KEY = "log.deletion.policy"
KAFKA = "kafka"

REGISTERED: Mapping[str, Callable[[], DeletionPolicy]] = MappingProxyType(
    {KAFKA: KafkaDeletionPolicy}
)


def load_policy(name: str) -> DeletionPolicy:
    """Load the policy; ConfigError when there is none of that name."""
    registered = REGISTERED.get(name)
    if registered is not None:
        return registered()
    module_name, colon, class_name = name.partition(":")
    if not (colon and module_name and class_name):
        raise _wrong(name, f"it must be {' or '.join(REGISTERED)}, or of the form module:Class")
    try:
        # This is a user's code, which may fail in any way.
        made: Any = getattr(importlib.import_module(module_name), class_name)()
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise _wrong(name, f"it can't be made ({type(error).__name__}: {reason})") from error
    if not callable(getattr(made, "count_deletable", None)):
        raise _wrong(name, "it has no method count_deletable(segments, limits)")
    policy: DeletionPolicy = made
    return policy


def _wrong(name: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{KEY}={name}: {reason}; correct the name, or the Python path, or remove it"
    )
