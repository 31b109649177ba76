"""The size of a group's record. A request that would make it larger than a batch of the log may be
is refused before anything has changed; a coordinator whose record can't be stored is restored from
the log, and would fail in the same way again.

The lengths are those of GroupMetadataKey and GroupMetadataValue, which
`protocol.state.group_records` writes.
"""

GROUP_FIXED_BYTES = 2 + 2 + 4 + 8 + 4
"""The versions of key and value, the generation, the time, and the number of members."""
MEMBER_FIXED_BYTES = 2 * 4 + 2 * 4
"""Both timeouts, and the length fields of subscription and assignment."""
LENGTH_BYTES = 2
"""The length field of a string, which null has too."""


def group_bytes(*texts: str | None, members: int) -> int:
    """Return the size of a record. `texts` are group id, protocol type, protocol and leader,
    `members` is the size of all members."""
    return GROUP_FIXED_BYTES + _texts_bytes(texts) + members


def member_bytes(*texts: str | None, data: int) -> int:
    """Return the size of a member. `texts` are member id, instance id, client id and host, `data`
    is the size of subscription and assignment."""
    return MEMBER_FIXED_BYTES + _texts_bytes(texts) + data


def _texts_bytes(texts: tuple[str | None, ...]) -> int:
    lengths = (
        0 if text is None else len(text) if text.isascii() else len(text.encode()) for text in texts
    )
    return LENGTH_BYTES * len(texts) + sum(lengths)
