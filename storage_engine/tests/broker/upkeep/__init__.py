"""Background work of brokers on their logs."""
