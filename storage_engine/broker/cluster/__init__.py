"""What brokers of a cluster share, and hear of its controller: metadata, orders, topics, ids."""
