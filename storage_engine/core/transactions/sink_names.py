"""The names of the exactly-once sink's transactions on Kafka's APIs, and of its batch writes. No
transactional producer can have such a name, and every member has one.

AddPartitionsToTxn and Produce carry a transactional id; that of a sink's members has a prefix, and
the sink id after it selects the coordinator. A batch write without a name counts as a query that
can't be repeated, which its prefix shows. A named batch write counts as a query of its own, too:
its name contains the part of the sink and the number. Source: R-SPARK2.
"""

MEMBER_PREFIX = "__headrace_sink/"
ONCE_PREFIX = "__headrace_once/"
"""The prefix of the query id of a batch write without a name; the rest of it is never used
again."""
NAMED_PREFIX = "__headrace_number/"
"""The prefix of the query id of a named batch write; its number and its part follow."""
MOST_NUMBER = 2**63 - 1
MOST_DIGITS = len(str(MOST_NUMBER))
NO_QUERY = ""
"""The owner of a batch write that is no part of a streaming query. No query has this name, so that
a sink keeps under it what belongs to all of its queries."""


def member_transactional_id(sink: str) -> str:
    """Return the transactional id of all members of the sink."""
    return MEMBER_PREFIX + sink


def is_member(transactional_id: str) -> bool:
    """Return True when the producer is a member of some sink's micro-batch."""
    return transactional_id.startswith(MEMBER_PREFIX)


def is_once(query: str) -> bool:
    """Return True when nobody will ask for the query's batch again once its job has ended."""
    return query.startswith(ONCE_PREFIX)


def named_write(part: str, number: int) -> str:
    """Return the query id of the batch write of that number to that part of a sink."""
    return f"{NAMED_PREFIX}{number}/{part}"


def part_and_number(query: str) -> tuple[str, int] | None:
    """Return the part and the number of a named batch write; None for other queries, and for a name
    that `named_write` does not make: a second name of one number would be a second ledger of it."""
    if not query.startswith(NAMED_PREFIX):
        return None
    number, slash, part = query.removeprefix(NAMED_PREFIX).partition("/")
    if not slash or len(number) > MOST_DIGITS or not number.isascii() or not number.isdigit():
        return None
    value = int(number)
    return (part, value) if value <= MOST_NUMBER and named_write(part, value) == query else None


def names_a_sink(sink: str, query: str, owner: str) -> bool:
    """Return True when the record of a query's own name only says under which sink it writes: that
    sink is its owner. Micro-batches are committed there."""
    return sink == query and owner != ""


def coordinated_name(transactional_id: str) -> str:
    """Return the part of a transactional id that selects the coordinator."""
    return transactional_id.removeprefix(MEMBER_PREFIX)
