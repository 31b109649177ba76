"""The messages between members of a classic group of consumers, as far as its coordinator reads
them.

Source: Kafka's ConsumerProtocolSubscription.json.
"""

import struct

_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def topic_count(metadata: bytes) -> int:
    """Return how many topics a member's metadata claims to have."""
    return max(0, _COUNT.unpack_from(metadata)[1]) if len(metadata) >= _COUNT.size else 0


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics in a member's metadata; None when it can't be decoded."""
    try:
        _, count = _COUNT.unpack_from(metadata)
        position = _COUNT.size
        topics = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            raw = metadata[position : position + length]
            if length < 0 or len(raw) != length:
                return None
            topics.append(raw.decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
