"""What a broker gives to Prometheus."""
