"""Transactions and micro-batches in simulated clusters."""
