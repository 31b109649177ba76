"""Topics with a schema, by brokers and clients as processes."""
