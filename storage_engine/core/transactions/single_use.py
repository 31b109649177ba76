"""Producer ids for one transaction only. Its one rule: whoever sees such an id knows that nothing
of it comes after its marker.

Each task attempt of the exactly-once sink has one. So logs forget it with its marker, while other
producers are remembered for a day after their last batch; their table would grow by every task of
every micro-batch. What comes late is kept out by the guard of the partition, which asks the
coordinator (`core.verification_guard`). Source: R-SPARK2.
"""

SINGLE_USE_BIT = 1 << 62
"""Ids that are given out count from 0, and never come so far."""


def single_use(producer_id: int) -> int:
    """The id of that number for one transaction."""
    return producer_id | SINGLE_USE_BIT


def is_single_use(producer_id: int) -> bool:
    return producer_id & SINGLE_USE_BIT != 0 and producer_id > 0
