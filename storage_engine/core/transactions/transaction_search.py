"""The transactional ids by which the leader of a partition asks the coordinator of one partition of
the state log about any producer: batches name their producer, but not its transactional id, which
would tell the coordinator. No producer can have such a name.
"""

SEARCH_PREFIX = "__headrace_search/"


def search_name(partition: int) -> str:
    """Return the name that the coordinator of that partition of the state log answers to."""
    return f"{SEARCH_PREFIX}{partition}"


def is_search(transactional_id: str) -> bool:
    return transactional_id.startswith(SEARCH_PREFIX)


def searched_partition(transactional_id: str) -> int | None:
    """Return the partition that the name is of; None for a name that `search_name` does not
    make."""
    number = transactional_id.removeprefix(SEARCH_PREFIX)
    if number.isascii() and number.isdigit() and len(number) < 10:
        partition = int(number)
        return partition if search_name(partition) == transactional_id else None
    return None
