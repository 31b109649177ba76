"""Handlers of the controller's orders, and of what only the controller answers."""
