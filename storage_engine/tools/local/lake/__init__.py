"""The lake beside a local cluster."""
