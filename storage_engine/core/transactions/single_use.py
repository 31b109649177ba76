"""Producer ids for one transaction only. No batch with such an id follows its marker.

Each task attempt of the exactly-once sink has one. So logs forget such an id with its marker. Other
producers are remembered for a day after their last batch; with single-use ids that table would grow
with every task of every micro-batch. Late batches are refused by the partition's guard, which asks
the coordinator (`core.transactions.verification_guard`). Source: R-SPARK2.
"""

SINGLE_USE_BIT = 1 << 62
"""Ordinary ids count from 0, and never get so high."""


def single_use(producer_id: int) -> int:
    """Return the single-use id with that number."""
    return producer_id | SINGLE_USE_BIT


def is_single_use(producer_id: int) -> bool:
    return producer_id & SINGLE_USE_BIT != 0 and producer_id > 0
