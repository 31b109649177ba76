"""How the transactions of the exactly-once sink are named on Kafka's APIs, and its batch writes.
Its one rule: no transactional producer can have such a name, and no member goes without.

AddPartitionsToTxn and Produce carry a transactional id; that of a sink's members begins with a
prefix, and leads to the coordinator of the sink id behind it. A batch write that its user has not
named is a query that nobody can repeat, and says so by its prefix. Source: R-SPARK2.
"""

MEMBER_PREFIX = "__headrace_sink/"
ONCE_PREFIX = "__headrace_once/"
"""Of the query id of a batch write; what follows is never used again."""


def member_transactional_id(sink: str) -> str:
    """What members of the sink give as their transactional id."""
    return MEMBER_PREFIX + sink


def is_member(transactional_id: str) -> bool:
    """Whether the producer is a member of some sink's micro-batch."""
    return transactional_id.startswith(MEMBER_PREFIX)


def is_once(query: str) -> bool:
    """Whether nobody will ask for the query's batch again, once its job has ended."""
    return query.startswith(ONCE_PREFIX)


def coordinated_name(transactional_id: str) -> str:
    """The name that decides on the coordinator."""
    return transactional_id.removeprefix(MEMBER_PREFIX)
