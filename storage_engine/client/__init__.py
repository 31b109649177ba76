"""The native client: the public `Producer`, and what the connector and the tools use to talk to
brokers.

Rule: every call ends within a documented deadline, in a result or in one typed error of one line.
Without threads, but for the one of a `Producer`. The names below are imported on first use, so that
no process pays for what it does not use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storage_engine.client.producer import Producer
    from storage_engine.client.producer_errors import (
        BufferFullError,
        ProducerClosedError,
        SerializationError,
    )
    from storage_engine.client.record_groups import RecordMetadata

__all__ = [
    "BufferFullError",
    "Producer",
    "ProducerClosedError",
    "RecordMetadata",
    "SerializationError",
]

_MODULES = {
    "BufferFullError": "producer_errors",
    "Producer": "producer",
    "ProducerClosedError": "producer_errors",
    "RecordMetadata": "record_groups",
    "SerializationError": "producer_errors",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
