"""Brokers in their cluster: registration, the controller's orders, metadata, topics and ids."""
