"""Clients of the simulated cluster."""
