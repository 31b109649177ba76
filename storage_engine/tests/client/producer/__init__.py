"""The producer, from records to acknowledged batches."""
