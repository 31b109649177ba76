"""The producer: records into batches, batches to leaders, transactions."""
