"""Reading ranges and following partitions."""
