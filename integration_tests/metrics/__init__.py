"""What Prometheus and boards get from brokers, and that asking costs clients nothing."""
