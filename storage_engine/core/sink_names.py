"""How the transactions of the exactly-once sink are named on Kafka's APIs. Its one rule: no
transactional producer can have such a name, and no member goes without.

AddPartitionsToTxn and Produce carry a transactional id; that of a sink's members begins with a
prefix, and leads to the coordinator of the sink id behind it. Source: R-SPARK2.
"""

MEMBER_PREFIX = "__headrace_sink/"


def member_transactional_id(sink: str) -> str:
    """What members of the sink give as their transactional id."""
    return MEMBER_PREFIX + sink


def is_member(transactional_id: str) -> bool:
    """Whether the producer is a member of some sink's micro-batch."""
    return transactional_id.startswith(MEMBER_PREFIX)


def coordinated_name(transactional_id: str) -> str:
    """The name that decides on the coordinator."""
    return transactional_id.removeprefix(MEMBER_PREFIX)
