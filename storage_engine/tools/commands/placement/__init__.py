"""Commands that change which brokers hold replicas."""
