"""The costs of many partitions: on one machine, and for a controller alone."""
