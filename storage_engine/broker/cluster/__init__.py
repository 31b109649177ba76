"""The shared state of a cluster's brokers: metadata, the controller's orders, topics and ids."""
