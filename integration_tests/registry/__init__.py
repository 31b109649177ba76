"""`headrace registry` with real brokers."""
