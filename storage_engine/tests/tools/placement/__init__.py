"""What is found wrong with segments, indexes and replicas."""
