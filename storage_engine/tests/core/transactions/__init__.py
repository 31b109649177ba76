"""The rules of transactions and of micro-batches."""
