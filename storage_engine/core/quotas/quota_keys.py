"""What can be bounded, by Kafka's names."""

import enum
import math
from collections.abc import Mapping

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.quotas.quota_entity import QuotaEntity


class QuotaKey(enum.Enum):
    """Each with its unit."""

    PRODUCED = "producer_byte_rate"
    """Bytes of Produce requests a second."""
    CONSUMED = "consumer_byte_rate"
    """Bytes of Fetch answers a second."""
    REQUESTS = "request_percentage"
    """Share of the time of one processor that the broker works for the client, in percent."""
    MUTATIONS = "controller_mutation_rate"
    """Partitions that are created or deleted a second."""
    CONNECTIONS = "connection_creation_rate"
    """New connections a second, of an address."""


_OF_USERS = (QuotaKey.PRODUCED, QuotaKey.CONSUMED, QuotaKey.REQUESTS, QuotaKey.MUTATIONS)
_OF_IPS = (QuotaKey.CONNECTIONS,)
_WHOLE = (QuotaKey.PRODUCED, QuotaKey.CONSUMED, QuotaKey.CONNECTIONS)
"""Kafka takes whole numbers for these."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Quotas = Mapping[QuotaKey, float]


def checked(entity: QuotaEntity, name: str, value: float) -> QuotaKey:
    """The key called `name` where `value` may be its bound for the entity; KafkaError that says
    what may be set."""
    allowed = _OF_USERS if entity.ip is None else _OF_IPS
    key = next((key for key in allowed if key.value == name), None)
    if key is None:
        names = ", ".join(each.value for each in allowed)
        raise KafkaError(
            f"'{name}' can't be set for {entity}; there are {names}", ErrorCode.INVALID_REQUEST
        )
    problem = _problem(key, value)
    if problem is not None:
        raise KafkaError(f"{name}={value:g}: {problem}", ErrorCode.INVALID_REQUEST)
    return key


def _problem(key: QuotaKey, value: float) -> str | None:
    if math.isnan(value) or value <= 0:
        return "must be above 0"
    if key in _WHOLE:
        most = INT_MAX if key is QuotaKey.CONNECTIONS else LONG_MAX
        if value != math.floor(value) or value > most:
            return f"must be a whole number up to {most}"
    if math.isinf(value):
        return "must be finite"
    return None


def setting_of(key: QuotaKey, value: float) -> str:
    """As Kafka writes it."""
    return str(int(value)) if key in _WHOLE else repr(value)


def quotas_in(settings: Mapping[str, str]) -> tuple[dict[QuotaKey, float], list[str]]:
    """The quotas among the settings of an entity in ZooKeeper, where other things may stand, such
    as a user's credentials; and a line for each that can't be read."""
    quotas: dict[QuotaKey, float] = {}
    problems: list[str] = []
    for key in QuotaKey:
        text = settings.get(key.value)
        if text is None:
            continue
        try:
            value = float(text)
        except ValueError:
            problems.append(f"{key.value}={text} is not a number")
            continue
        problem = _problem(key, value)
        if problem is None:
            quotas[key] = value
        else:
            problems.append(f"{key.value}={text} {problem}")
    return quotas, problems
