"""The topics that the brokers keep for themselves. Clients read and configure them, and do nothing
else to them.

With more partitions half of the keys would belong to other partitions; a deletion would lose the
open transactions and the offsets of groups. Source: KIP-98.
"""

from storage_engine.core.errors import ErrorCode, KafkaError

TRANSACTION_STATE_TOPIC = "__transaction_state"

GROUP_OFFSETS_TOPIC = "__consumer_offsets"

INTERNAL_TOPICS = frozenset({TRANSACTION_STATE_TOPIC, GROUP_OFFSETS_TOPIC})


def check_not_internal(topic: str, action: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION for a topic that clients may not `action`."""
    if topic in INTERNAL_TOPICS:
        raise KafkaError(
            f"'{topic}' belongs to the brokers, clients can't {action} it",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
