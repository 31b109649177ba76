"""Handlers of the controller's orders, and of requests that only the controller answers."""
