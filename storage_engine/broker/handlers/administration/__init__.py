"""Handlers of the APIs that administer topics, settings, replicas and the cluster."""
