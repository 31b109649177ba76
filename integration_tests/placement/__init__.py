"""Brokers that are cordoned, drained and rebalanced."""
