"""What the brokers of a cluster share: its metadata, the controller's orders, topics and ids."""
