"""Shared by the brokers of a cluster: its metadata, the controller's orders, topics and ids."""
