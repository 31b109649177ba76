"""What is seen of a cluster."""
