"""Topic ids as text where other versions of an API have a topic's name.

The functions are pure and their results are cached, since clients fetch the same topics again and
again. Source: KIP-516.
"""

import functools
from uuid import UUID

from storage_engine.core.ids import topic_id_from_text, topic_id_to_text

_REMEMBERED = 4096


@functools.lru_cache(_REMEMBERED)
def id_text(raw: bytes) -> str:
    """The text of 16 bytes."""
    return topic_id_to_text(UUID(bytes=raw))


@functools.lru_cache(_REMEMBERED)
def id_of_text(text: str) -> UUID:
    """The id that a text stands for; ValueError where it stands for none."""
    return topic_id_from_text(text)


@functools.lru_cache(_REMEMBERED)
def id_bytes(text: str) -> bytes:
    """The 16 bytes of a text."""
    return topic_id_from_text(text).bytes
