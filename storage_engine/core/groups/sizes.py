"""How many bytes the record of a group takes. Its one rule: who would make it larger than a batch
of the log may be is refused before anything has changed: a coordinator whose record is not stored
begins anew, and would do so each time.

The lengths are those of GroupMetadataKey and GroupMetadataValue, which `protocol.group_records`
writes.
"""

GROUP_FIXED_BYTES = 2 + 2 + 4 + 8 + 4
"""Versions of key and value, generation, time, number of members."""
MEMBER_FIXED_BYTES = 2 * 4 + 2 * 4
"""Both timeouts, and the lengths of subscription and assignment."""
LENGTH_BYTES = 2
"""Length field of a string; null has one too."""


def group_bytes(*texts: str | None, members: int) -> int:
    """`texts`: group id, protocol type, protocol and leader; `members`: all bytes of them."""
    return GROUP_FIXED_BYTES + _texts_bytes(texts) + members


def member_bytes(*texts: str | None, data: int) -> int:
    """`texts`: member id, instance id, client id and host; `data`: subscription and assignment."""
    return MEMBER_FIXED_BYTES + _texts_bytes(texts) + data


def _texts_bytes(texts: tuple[str | None, ...]) -> int:
    lengths = (
        0 if text is None else len(text) if text.isascii() else len(text.encode()) for text in texts
    )
    return LENGTH_BYTES * len(texts) + sum(lengths)
