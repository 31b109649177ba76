"""What many partitions cost: on one machine, and for a controller alone."""
