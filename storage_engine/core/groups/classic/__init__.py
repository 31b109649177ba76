"""Classic groups: their members join together, and one of them assigns the partitions."""
