"""Handlers of the APIs that look after topics, settings, replicas and the cluster."""
