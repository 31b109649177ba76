"""How the transactions of the exactly-once sink are named on Kafka's APIs, and its batch writes.
Its one rule: no transactional producer can have such a name, and no member goes without.

AddPartitionsToTxn and Produce carry a transactional id; that of a sink's members begins with a
prefix, and leads to the coordinator of the sink id behind it. A batch write that its user has not
named is a query that nobody can repeat, and says so by its prefix. One that is named is a query of
its own, too: its name says the part of the sink and the number. Source: R-SPARK2.
"""

MEMBER_PREFIX = "__headrace_sink/"
ONCE_PREFIX = "__headrace_once/"
"""Prefix of the query id of a batch write; what follows is never used again."""
NAMED_PREFIX = "__headrace_number/"
"""Prefix of the query id of a named batch write; its number and its part follow."""
MOST_NUMBER = 2**63 - 1
MOST_DIGITS = len(str(MOST_NUMBER))
FORMER_SEQUENCE = "batch-writes"
"""The query id that all named batch writes of a sink shared, when only their last number was kept.
Nobody is given it any more; state logs still have it."""
NO_QUERY = ""
"""Where a batch write is no part of a streaming query. No query has this name, so a sink keeps
under it what belongs to all of them."""


def member_transactional_id(sink: str) -> str:
    """The transactional id of all members of the sink."""
    return MEMBER_PREFIX + sink


def is_member(transactional_id: str) -> bool:
    """Whether the producer is a member of some sink's micro-batch."""
    return transactional_id.startswith(MEMBER_PREFIX)


def is_once(query: str) -> bool:
    """Whether nobody will ask for the query's batch again, once its job has ended."""
    return query.startswith(ONCE_PREFIX)


def named_write(part: str, number: int) -> str:
    """The query id of the batch write of that number to that part of a sink."""
    return f"{NAMED_PREFIX}{number}/{part}"


def part_and_number(query: str) -> tuple[str, int] | None:
    """Of a named batch write; None for other queries, and for a name that `named_write` does not
    make: a second name of one number would be a second ledger of it."""
    if not query.startswith(NAMED_PREFIX):
        return None
    number, slash, part = query.removeprefix(NAMED_PREFIX).partition("/")
    if not slash or len(number) > MOST_DIGITS or not number.isascii() or not number.isdigit():
        return None
    value = int(number)
    return (part, value) if value <= MOST_NUMBER and named_write(part, value) == query else None


def coordinated_name(transactional_id: str) -> str:
    """The name that decides on the coordinator."""
    return transactional_id.removeprefix(MEMBER_PREFIX)
