"""What brokers do to logs in the background."""
