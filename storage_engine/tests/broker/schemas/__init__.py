"""What a broker knows of a registry's schemas, in a simulated cluster."""
