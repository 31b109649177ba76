"""Transactions and micro-batches with real processes."""
