"""Arrow tables as batches: of topics whose records are opaque, and of topics with a schema."""
