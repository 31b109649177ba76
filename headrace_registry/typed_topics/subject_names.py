"""The subject of the values of a topic: `T-value`."""

_SUFFIX = "-value"


def subject_of(topic: str) -> str:
    return f"{topic}{_SUFFIX}"


def topic_of(subject: str) -> str | None:
    """The topic whose values have the subject; None for other subjects."""
    return subject.removesuffix(_SUFFIX) if subject.endswith(_SUFFIX) else None
