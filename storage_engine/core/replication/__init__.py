"""A partition between its replicas: high watermark, in-sync replicas, leader epochs, truncation."""
