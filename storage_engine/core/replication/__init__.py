"""The replication of a partition: high watermark, in-sync replicas, leader epochs, truncation."""
