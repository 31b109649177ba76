"""Handlers of the APIs of transactions, and of the micro-batches of the exactly-once sink."""
